"""Golden transcripts: every message of a two-round call, exactly as it is on the wire, in both eras.

Only what differs from run to run is replaced: tokens (by the order in which they appear), ids and versions of the SDK.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from mcp.client.streamable_http import streamable_http_client
from syrupy.assertion import SnapshotAssertion

from roundtrip.testing import Era, served
from roundtrip.testing.tap import Json, Tap
from tests.kit.bookshop import bookshop
from tests.kit.players import Person, Reply, connect, roots, sample

pytestmark = pytest.mark.anyio


class Normaliser:
    """Gives each token and id a name by the order in which it was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Any, str]] = {"token": {}, "id": {}}

    def _name(self, kind: str, value: Any) -> str:
        seen = self._seen[kind]
        return seen.setdefault(value, f"<{kind} {len(seen) + 1}>")

    def __call__(self, value: Any, sender: str = "") -> Any:
        if isinstance(value, list):
            return [self(item, sender) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        out: Json = {}
        for key, item in cast("Json", value).items():
            if key == "requestState":
                out[key] = self._name("token", item)
            elif key in ("id", "progressToken", "requestId"):
                out[key] = self._name("id", (sender, item))
            elif key in ("serverInfo", "clientInfo") or key.endswith(("/clientInfo", "/serverInfo")):
                out[key] = {"name": item["name"]}
            else:
                out[key] = self(item, sender)
        return out


def transcript(messages: Sequence[tuple[str, Json]]) -> str:
    normalise = Normaliser()
    lines: list[str] = []
    for sender, message in messages:
        # An answer's id was given by the other side.
        asker = sender if "method" in message else ("server" if sender == "client" else "client")
        lines.append(f"{sender}: {json.dumps(normalise(message, asker), indent=2, sort_keys=True)}")
    return "\n".join(lines)


async def record(era: Era, tool: str, *replies: Reply) -> str:
    async with served(bookshop()) as url:
        tap = Tap(streamable_http_client(url))
        options: dict[str, Any] = {"sampling_callback": sample, "list_roots_callback": roots}
        async with connect(tap, era, Person(*replies), **options) as client:
            await client.call_tool(tool, {"title": "Neuromancer"})
    return transcript(tap.messages)


async def test_a_call_of_two_rounds(era: Era, snapshot: SnapshotAssertion) -> None:
    assert await record(era, "order", {"confirm": True}, {"copies": 2}) == snapshot


async def test_invalid_answer_is_followed_by_a_decline(era: Era, snapshot: SnapshotAssertion) -> None:
    assert await record(era, "order", {"confirm": "perhaps"}, "decline") == snapshot


async def test_a_batch_of_three_kinds_of_questions(era: Era, snapshot: SnapshotAssertion) -> None:
    assert await record(era, "present", {"confirm": True}) == snapshot
