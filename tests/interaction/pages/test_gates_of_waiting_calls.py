"""Visibility gates of tools whose calls wait: each leg that goes on with a call is one that its client may see."""

from typing import Any

import pytest

from roundtrip import Approve, Context, Server
from tests.interaction.pages.ways import modes
from tests.kit.approving import Person, open_shop
from tests.kit.approving import shop as approving_shop
from tests.kit.hosts import hosted
from tests.kit.page_users import Browser, client_of, go_on, link_in, text_of, with_pages

pytestmark = pytest.mark.anyio


class Gate:
    """Gate that a test opens and closes, and the work behind it."""

    def __init__(self) -> None:
        self.is_open = True
        self.users: list[str | None] = []
        self.ran: list[str] = []

    def __call__(self, ctx: Context) -> bool:
        headers: Any = ctx.headers
        self.users.append(headers.get("x-user"))
        return self.is_open

    def install(self, server: Server[Any], **options: Any) -> None:
        @server.tool(enabled=self, **options)
        async def wipe(what: str, ctx: Context) -> str:
            """Wipe something."""
            await ctx.step("note", lambda: self.ran.append("noted"))
            why = await ctx.ask("why", "Why?", str)
            self.ran.append(what)
            return f"wiped {what} as {why}"


async def answer(url: str, link: str, text: str) -> None:
    browser = Browser(url, "ann")
    page = await browser.open_with(link, "<form")
    assert (await browser.send(link, page, text)).status_code == 303


@modes
async def test_closed_gate_hides_a_waiting_call(mode: str) -> None:
    gate, server = Gate(), with_pages(wait=1)
    gate.install(server)
    async with hosted(server.streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("wipe", {"what": "all"})
        gate.is_open = False
        await answer(url, link_in(asked), "it is old")
        unknown = [
            await go_on(client, asked),
            await client.call_tool("wipe", {"what": "all"}),
            await client.call_tool("wipe", {"what": "other"}),
        ]
        assert [text_of(result) for result in unknown] == ["Unknown tool: wipe"] * 3
        assert all(result.is_error for result in unknown)
        assert gate.ran == ["noted"]
        gate.is_open = True
        result = await go_on(client, asked)
        assert text_of(result) == "wiped all as it is old"
        assert gate.ran == ["noted", "all"]
    # No leg without a request of the client has evaluated it.
    assert set(gate.users) == {"ann"}


async def test_decision_does_not_run_a_call_behind_a_closed_gate() -> None:
    gate, server = Gate(), approving_shop(wait=2)

    @server.tool(name="wipe", enabled=gate, confirm=Approve("Wipe?", by="finance"))
    async def wipe() -> str:
        gate.ran.append("wiped")
        return "wiped"

    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("wipe", {})
        gate.is_open = False
        await Person(url, "fay").decide("approve", start="Wipe")
        unknown = await go_on(client, asked)
        assert text_of(unknown) == "Unknown tool: wipe"
        assert gate.ran == []
        gate.is_open = True
        assert text_of(await go_on(client, asked)) == "wiped"
