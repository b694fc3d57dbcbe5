"""Attacks on the channel `app`: by agents that see all but `_meta`, by other users, and by hosts that send anything."""

import itertools
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from roundtrip.ledger import MemoryLedger
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.adapters.apps.hosting import MODES, App, continued, host, made, serving
from tests.kit.page_users import handle_in, link_in

pytestmark = pytest.mark.anyio

each_mode = pytest.mark.parametrize("mode", MODES)
each_kind = pytest.mark.parametrize("kind", ["server", "mcpserver", "fastmcp"])


def dump(result: Any) -> Any:
    return result.model_dump(mode="json", exclude={"meta"})


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts that an agent finds in a value, whole and in pieces."""
    if isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from (key, *texts_in(each))
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from texts_in(each)
    elif isinstance(value, str):
        yield value
        yield from value.replace("'", " ").replace("/", " ").split()


@each_mode
async def test_agent_without_meta_cannot_answer(mode: str) -> None:
    """The agent has all tools, all results, the handle and the link, and tries everything with everything."""
    async with serving(made("server", pages={"wait": 0.0})) as url, host(url, mode=mode) as client:
        asked = await client.call_tool("delete", {"film": "Solaris"})
        app = App.of(client, asked)
        seen = dump(asked), dump(await client.call_tool("continue_call", {"handle": handle_in(asked)}))
        link, handle = link_in(asked), handle_in(asked)
        guesses = {*texts_in(list(seen)), link, handle, link.rpartition("/")[2], handle.partition(".")[0]}
        call_id, link_secret = link.rpartition("/")[2].split(".")
        guesses |= {f"{call_id}.{part}" for part in (handle.partition(".")[2], link_secret, "", call_id)}
        round_ = app.state["round"]
        closed = dump(await client.call_tool("look_at_call", {"ticket": "a" * 40}))
        for ticket, name in itertools.product(guesses, ("look_at_call", "answer_call")):
            given: dict[str, Any] = {"ticket": ticket}
            if name == "answer_call":
                given |= {"round": round_, "answers": {"decision": ["answer"]}}
            assert dump(await client.call_tool(name, given)) == closed
        # `continue_call` takes no answers either.
        for answers in ({"confirm:delete": True}, {"decision": ["answer"]}):
            tried = await client.call_tool("continue_call", {"handle": handle, "answers": answers})
            assert "deleted" not in str(tried.content) or "waits" in str(tried.content)
        assert (await app.look())["kind"] == "asking"


@each_kind
@each_mode
async def test_ticket_opens_the_call_for_its_user_alone(mode: str, kind: str) -> None:
    async with serving(made(kind)) as url:
        async with host(url, mode=mode) as ann:
            app = App.of(ann, await ann.call_tool("delete", {"film": "Solaris"}))
        ticket, answer = app.payload["ticket"], {"round": app.state["round"], "answers": {"decision": ["answer"]}}
        for user in ("eve", None):
            async with host(url, user, mode=mode) as other:
                unknown = dump(await other.call_tool("look_at_call", {"ticket": "a" * len(ticket)}))
                assert dump(await other.call_tool("look_at_call", {"ticket": ticket})) == unknown
                assert dump(await other.call_tool("answer_call", {"ticket": ticket, **answer})) == unknown
        # Another session of the same user may answer.
        async with host(url, mode=mode) as again:
            app.client = again
            await app.answer()
            assert app.state["kind"] == "ended"


async def test_ticket_of_another_call_opens_that_call_alone() -> None:
    async with serving(made("server")) as url, host(url) as client:
        first = App.of(client, await client.call_tool("delete", {"film": "Solaris"}))
        other = App.of(client, await client.call_tool("book", {"film": "Stalker"}))
        stolen = {"ticket": other.payload["ticket"], "round": first.state["round"], "answers": {"decision": ["answer"]}}
        result = await client.call_tool("answer_call", stolen)
        assert result.structured_content is not None
        assert result.structured_content["state"]["notice"].startswith("Nothing was sent")
        mixed = f"{first.payload['ticket'].partition('.')[0]}.{other.payload['ticket'].partition('.')[2]}"
        assert (await client.call_tool("look_at_call", {"ticket": mixed})).is_error
        assert (await first.look())["kind"] == (await other.look())["kind"] == "asking"


@each_mode
async def test_ended_call_shows_its_owner_the_end(mode: str) -> None:
    async with serving(made("server")) as url, host(url, mode=mode) as client:
        asked = await client.call_tool("delete", {"film": "Solaris"})
        app = App.of(client, asked)
        round_ = app.state["round"]
        await app.send({"decision": ["decline"]})
        assert app.state["kind"] == "ended"
        await app.send({"decision": ["answer"]}, round_=round_)
        assert app.state["kind"] == "ended"
        assert app.state["notice"].startswith("Nothing was sent")
        assert "declined" in await continued(client, asked)


async def test_forgotten_call_is_closed() -> None:
    ledger = MemoryLedger()
    async with serving(made("server", ledger=ledger)) as url, host(url) as client:
        app = App.of(client, await client.call_tool("delete", {"film": "Solaris"}))
        unknown = dump(await client.call_tool("look_at_call", {"ticket": "a" * 40}))
    # Another instance has other calls.
    async with serving(made("server")) as url, host(url) as client:
        assert dump(await client.call_tool("look_at_call", {"ticket": app.payload["ticket"]})) == unknown


GARBAGE: tuple[Any, ...] = (
    None,
    True,
    0,
    1.5,
    math.pi,
    "",
    "x",
    "\ud7ff" * 10,
    "a" * 3000,
    [],
    {},
    ["a"],
    {"a": {"b": []}},
)


@each_kind
async def test_garbage_is_rejected_without_repeating_it(
    kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    marker = "hostile-marker"
    async with serving(made(kind)) as url, host(url) as client:
        app = App.of(client, await client.call_tool("book", {"film": "Solaris"}))
        known = {"ticket": app.payload["ticket"], "round": app.state["round"], "answers": {"decision": ["answer"]}}
        for name, value in itertools.product(known, (*GARBAGE, marker, [marker], {marker: [marker]}, {marker: marker})):
            result = await client.call_tool("answer_call", {**known, name: value})
            assert marker not in result.model_dump_json()
        for texts in (
            {"decision": ["answer"], "q0-f0": [marker, marker]},
            {"decision": ["maybe"]},
            {"decision": ["answer", "answer"]},
            {"decision": ["answer"], "q0-f0": [3]},
            {"decision": ["answer"], "q0-f0": ["3" * 300_000]},
        ):
            result = await app.send(texts)  # type: ignore[arg-type]
            assert result.is_error
            assert marker not in result.model_dump_json()
        assert (await app.look())["kind"] == "asking"
        await app.answer("3")
        assert app.state["kind"] == "ended"
    assert marker not in caplog.text


@each_kind
@each_mode
async def test_ticket_is_in_no_trace_log_or_error(
    mode: str, kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    trace = tmp_path / "trace.jsonl"
    server = made(kind, trace=Recorder(trace, reveal="all"))
    async with serving(server) as url, host(url, mode=mode) as client:
        asked = await client.call_tool("survey", {})
        app = App.of(client, asked)
        secret = app.payload["ticket"].partition(".")[2]
        await app.answer("1")
        await app.answer("x")
        await app.look()
        mistaken = await client.call_tool("answer_call", {"ticket": app.payload["ticket"], "more": 1})
        assert secret not in mistaken.model_dump_json()
        await app.answer("2")
        await app.answer("3")
        assert await continued(client, asked) == "[1, 2, 3]"
    lines = trace.read_text()
    assert "survey" in lines
    assert secret not in lines
    assert "answer_call" not in lines
    # The SDK's own loggers write whole messages at their most verbose level.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("roundtrip")]
    assert secret not in "\n".join(ours)
