"""Hosts on the AI SDK's helpers for MCP Apps: calls end in an app, and the model's own tools are useless without it."""

import json
import re
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp_types import CallToolResult

from roundtrip.channels.apps.app_calls import ANSWER_TOOL, LOOK_TOOL
from roundtrip.channels.apps.app_messages import app_uri, document
from tests.clients.app_servers import USER, app_server
from tests.clients.drivers import node_with
from tests.clients.tables import ClientTable, HostWithApps, table_of_hosts
from tests.conformance.suite import NODE_MODULES
from tests.interaction.adapters.apps.hosting import App
from tests.kit.approving import Person
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(__file__).parent / "node" / "ai_sdk_apps.mjs"
ASKING: Final = ("book", "delete", "order", "survey", "refund")
OWN: Final = {ANSWER_TOOL, LOOK_TOOL}

of_each_revision = pytest.mark.parametrize("live", [False, True], ids=["2026-07-28", "2025-11-25"])


class AiSdkHost:
    """Host that shows apps, in a process of its own."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, BufferedByteReceiveStream(process.stdout)

    async def do(self, action: str, **values: Any) -> dict[str, Any]:
        await self.send({"do": action, **values})
        with anyio.fail_after(WAIT):
            return json.loads(await self._from.receive_until(b"\n", 10_000_000))

    async def send(self, message: dict[str, Any]) -> None:
        await self._to.send(json.dumps(message).encode() + b"\n")

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool as the view does, through its host."""
        return CallToolResult.model_validate((await self.do("app", name=name, args=arguments))["result"])

    async def begin(self, tool: str, **arguments: str) -> tuple[App, str]:
        """Make the model's call, and return its view and what the model gets."""
        made = await self.do("call", name=tool, args=arguments)
        client: Any = self
        return App.of(client, CallToolResult.model_validate(made["result"])), text_of(made)

    async def continued(self, shown: str) -> str:
        return text_of(await self.do("call", name="continue_call", args={"handle": handle_in(shown)}))


def text_of(made: dict[str, Any]) -> str:
    """Return the text that a model gets."""
    assert made["model"]["type"] == "content", made
    assert {part["type"] for part in made["model"]["value"]} == {"text"}
    return "\n".join(part["text"] for part in made["model"]["value"])


def handle_in(text: str) -> str:
    return text.partition("handle='")[2].partition("'")[0]


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Generator[ClientTable]:
    with table_of_hosts(request) as table:
        yield table


@asynccontextmanager
async def ai_sdk_host(url: str, *, live: bool) -> AsyncGenerator[AiSdkHost]:
    command = [node_with("@ai-sdk/mcp"), str(PROGRAM), str(NODE_MODULES)]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        host = AiSdkHost(process)
        try:
            await host.send({"url": f"{url}/mcp", "headers": {"x-user": USER}, "live": live})
            yield host
        finally:
            process.kill()


@of_each_revision
async def test_five_tools_end_in_an_app(table: ClientTable, live: bool) -> None:
    with app_server() as url:
        async with ai_sdk_host(url, live=live) as host:
            about = await host.do("about")
            assert set(about["app"]) == OWN
            assert not OWN & set(about["model"])
            shown = {name: app["resourceUri"] for name, app in about["apps"].items() if app is not None}
            assert shown == dict.fromkeys(ASKING, app_uri())
            assert await host.do("document", uri=app_uri()) == {"html": document(), "meta": {"prefersBorder": False}}

            app, text = await host.begin("book", film="Solaris")
            await app.answer("3")
            assert await host.continued(text) == "Solaris, seat 3"

            app, text = await host.begin("delete", film="Solaris")
            await app.answer()
            assert await host.continued(text) == "Solaris is deleted"

            app, text = await host.begin("order")
            await app.answer("2")
            assert app.heading == "Is this right?"
            await app.answer("3")
            assert await host.continued(text) == "3 cups"

            app, text = await host.begin("survey")
            for number in ("1", "2", "3"):
                await app.answer(number)
            assert await host.continued(text) == "[1, 2, 3]"

            app, text = await host.begin("refund", order="A7")
            assert app.state["kind"] == "awaiting"
            await Person(url, "fred").decide("approve")
            assert (await app.until("ended"))["decisions"][0]["outcome"] == "approved"
            assert await host.continued(text) == "refunded A7"
    table.check(
        HostWithApps("AI SDK 2.0 with its helpers for apps", "2025-11-25" if live else "2026-07-28"), *["app"] * 5
    )


async def test_page_has_a_row_for_each_host_and_no_other(table: ClientTable) -> None:
    table.check_starts()


@of_each_revision
async def test_model_with_all_tools_cannot_answer(live: bool) -> None:
    """`tools()` gives a model the app's tools, too. But it sees no `_meta` of results, so it has no ticket."""
    with app_server() as url:
        async with ai_sdk_host(url, live=live) as host:
            assert set((await host.do("about"))["plain"]) >= OWN
            app, text = await host.begin("delete", film="Solaris")
            again = await host.do("plain", name="delete", args={"film": "Solaris"})
            known = words_in(text, text_of(again), str(app.payload["link"]))
            assert app.payload["ticket"] not in known
            # A model may also have seen tickets of its other calls' handles and links, and guess rounds.
            for ticket in sorted(known):
                looked = await host.do("plain", name=LOOK_TOOL, args={"ticket": ticket})
                assert (looked["isError"], text_of(looked)) == (True, CLOSED)
                for round_ in (app.state["round"], handle_in(text)):
                    given = {"ticket": ticket, "round": round_, "answers": {"decision": ["answer"]}}
                    answered = await host.do("plain", name=ANSWER_TOOL, args=given)
                    assert (answered["isError"], text_of(answered)) == (True, CLOSED)
            handle = handle_in(text)
            for answers in (
                {"confirm:delete": True},
                {"confirm:delete": {"action": "accept"}},
                {"decision": ["answer"]},
            ):
                said = await host.do("plain", name="continue_call", args={"handle": handle, "answers": answers})
                assert "Solaris is deleted" not in json.dumps(said)
            asking = app.state
            assert await app.look() == asking
            await app.answer()
            assert await host.continued(text) == "Solaris is deleted"


CLOSED: Final = "There is no such question for you. It may have expired."


def words_in(*texts: str) -> set[str]:
    """Return all that could be a ticket: each word, each part of an address or of a handle, and pairs of the parts."""
    words = {word.strip("'\".,:") for text in texts for word in re.split(r"[\s=]+", text)}
    parts = {part for word in words for part in re.split(r"[/.]", word) if len(part) > 8}
    parts |= {handle_in(text) for text in texts} | {word.rpartition("/")[2] for word in words if "/" in word}
    ids = {part for part in parts if re.fullmatch(r"[\w-]+", part)}
    return parts | {f"{one}.{other}" for one in ids for other in ids} | {"", "shop.example"}
