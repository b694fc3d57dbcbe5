"""The page of the machine as a rung of the ladder: beside the other rungs, for equal calls, and for samples."""

from typing import Any, cast

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageResult,
    ElicitationCapability,
    TextContent,
    UrlElicitationCapability,
)

from roundtrip import Context, Pages, Server
from tests.interaction.pages.local.desktop import Desktop, answering, tab
from tests.interaction.pages.ways import modes
from tests.kit.hosts import WAIT, hosted
from tests.kit.page_users import BASE, client_of, declare_only, handle_in, reader, text_of
from tests.kit.visitors import Visitor

pytestmark = pytest.mark.anyio


def user_of(ctx: Any) -> str | None:
    """Return the user of a request: by a header over HTTP, by its metadata on stdio."""
    if ctx.request is not None:
        return ctx.request.headers.get("x-user")
    meta: dict[str, Any] = ctx.meta or {}
    return meta.get("user")


def shop(desktop: Desktop, ladder: Any = None, **settings: Any) -> Any:
    given: dict[str, Any] = {"local": desktop.open, "wait": WAIT, **settings}
    server = Server[Any]("shop", keys=["7f" * 32], principal=user_of, pages=Pages(**given), ladder=ladder)

    @server.tool()
    async def anyone(ctx: Context) -> str:
        """Ask anyone."""
        return str(await ctx.ask("size", "How many?", int, answered_by="anyone"))

    @server.tool()
    async def human(ctx: Context) -> str:
        """Ask a human."""
        return str(await ctx.ask("size", "How many?", int))

    @server.tool()
    async def sampling(ctx: Context) -> str:
        """Ask, sample, and ask again."""
        size = await ctx.ask("size", "How many?", int)
        word = (await ctx.sample("A word?")).text
        return f"{size} {word} {await ctx.ask('more', 'More?', int)}"

    return cast("Any", server)


async def test_question_for_anyone_opens_the_page_before_it_asks_a_model() -> None:
    desktop = Desktop()
    server = shop(desktop, ["form", "local", "model"])
    async with Client(server, mode="2026-07-28") as client, answering(desktop, "3"):
        with anyio.fail_after(WAIT):
            assert text_of(await client.call_tool("anyone", {})) == "3"
    assert len(desktop.addresses) == 1
    # A client over HTTP has no such page, and its model is asked.
    async with hosted(server.streamable_http_app()) as url, client_of(url, None, mode="2026-07-28") as client:
        asked = await client.call_tool("anyone", {})
        answers = {"handle": handle_in(asked), "answers": {"size": 4}}
        assert text_of(await client.call_tool("continue_call", answers)) == "4"
    assert len(desktop.addresses) == 1


async def test_model_is_asked_if_no_browser_can_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUNDTRIP_LOCAL_PAGES", "0")
    desktop = Desktop()
    async with Client(shop(desktop, ["form", "local", "model"]), mode="2026-07-28") as client:
        asked = await client.call_tool("anyone", {})
        answers = {"handle": handle_in(asked), "answers": {"size": 4}}
        assert text_of(await client.call_tool("continue_call", answers)) == "4"
        # A model is never asked in the place of a human.
        with pytest.raises(MCPError, match="ROUNDTRIP_LOCAL_PAGES is off") as caught:
            await client.call_tool("human", {})
    assert caught.value.error.code == -32021
    assert desktop.addresses == []


async def test_client_that_shows_links_gets_none_on_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    desktop, visitor = Desktop(), Visitor()
    server = shop(desktop, base_url=BASE, authenticate=reader)
    async with Client(server, mode="2026-07-28", elicitation_callback=visitor) as client, answering(desktop, "3"):
        with anyio.fail_after(WAIT):
            assert text_of(await client.call_tool("human", {}, meta={"user": "ann"})) == "3"
    assert visitor.pages == []


# Equal calls.


async def test_equal_calls_of_two_users_have_a_page_each() -> None:
    desktop = Desktop()
    async with Client(shop(desktop, wait=0), mode="2026-07-28") as client:
        ann = await client.call_tool("human", {}, meta={"user": "ann"})
        ben = await client.call_tool("human", {}, meta={"user": "ben"})
        assert handle_in(ann) != handle_in(ben)
        for_ann = {"handle": handle_in(ann)}
        assert (await client.call_tool("continue_call", for_ann, meta={"user": "ben"})).is_error
        assert handle_in(await client.call_tool("continue_call", for_ann, meta={"user": "ann"})) == handle_in(ann)
        await desktop.address(1)


@modes
async def test_cancelled_request_leaves_its_call_to_an_equal_one(mode: str) -> None:
    desktop, results = Desktop(), list[str]()
    server = shop(desktop)
    async with Client(server, mode=mode) as client, tab() as one:
        cancelled = anyio.CancelScope()

        async def first() -> None:
            with cancelled:
                await client.call_tool("anyone", {})

        async def second() -> None:
            results.append(text_of(await client.call_tool("anyone", {})))

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:
                group.start_soon(first)
                await one.open(await desktop.address())
                group.start_soon(second)
                # Lists are answered meanwhile, and so these wait for requests of the same connection.
                while sum(server._legs.stored_calls._local._untold.values()) < 2:
                    await client.list_tools()
                cancelled.cancel()
                while sum(server._legs.stored_calls._local._untold.values()) > 1:
                    await client.list_tools()
                assert (await one.send("8")).heading == "Done"
    assert results == ["8"]
    assert len(desktop.addresses) == 1


# Samples.


@modes
async def test_client_is_asked_for_samples_when_it_continues_a_call(mode: str) -> None:
    desktop = Desktop()

    async def sampled(context: Any, params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="pie"), model="m")

    async with (
        Client(shop(desktop), mode=mode, sampling_callback=sampled) as client,
        answering(desktop, "3"),
    ):
        with anyio.fail_after(WAIT):
            asked = await client.call_tool("sampling", {})
            assert "still running" in text_of(asked)
            assert text_of(await client.call_tool("continue_call", {"handle": handle_in(asked)})) == "3 pie 3"
    assert len(desktop.addresses) == 1
