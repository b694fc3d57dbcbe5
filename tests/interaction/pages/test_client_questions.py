"""Samples and roots in calls whose users answer on pages: only the client's software answers them."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp_types import (
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
    UrlElicitationCapability,
)
from pydantic import FileUrl

from roundtrip import Context, Elicit, ListRoots, Sample, Server, get_http_headers, get_request
from roundtrip.ledger import SqliteLedger
from tests.interaction.pages.paged import paged
from tests.kit.hosts import hosted
from tests.kit.page_users import Browser, client_of, declare_only, handle_in, link_in, resume, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def library(channels: Any = None) -> Server[Any]:
    server = paged("library", channels=channels)

    @server.tool()
    async def before(ctx: Context) -> str:
        """Sample, and then ask."""
        word = (await ctx.sample("A word?")).text
        return f"{word} {await ctx.ask('size', 'How many?', int)}"

    @server.tool()
    async def after(ctx: Context) -> str:
        """Ask, sample, and ask again."""
        size = await ctx.ask("size", "How many?", int)
        word = (await ctx.sample("A word?")).text
        roots = await ctx.list_roots()
        more = await ctx.ask("more", "More?", int)
        return f"{size} {word} {len(roots.roots)} {more}"

    @server.tool()
    async def at_once(ctx: Context) -> str:
        """Ask everybody at once."""
        said = await ctx.ask_all(
            {"size": Elicit("How many?", int), "word": Sample("A word?", max_tokens=10), "roots": ListRoots()}
        )
        return f"{said['size']} {said['word'].content.text} {len(said['roots'].roots)}"

    @server.tool()
    async def anyone(ctx: Context) -> str:
        """Ask anyone, and then sample."""
        size = await ctx.ask("size", "How many?", int, answered_by="anyone")
        return f"{size} {(await ctx.sample('A word?')).text}"

    return server


async def sampled(context: Any, params: Any) -> CreateMessageResult:
    assert params.messages[0].content.text == "A word?"
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="pie"), model="m")


async def rooted(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///books"))])


CALLBACKS: dict[str, Any] = {"sampling_callback": sampled, "list_roots_callback": rooted}
ANSWERS = {"How many": "2", "More": "3"}
EXPECTED = {"before": "pie 2", "after": "2 pie 1 3", "at_once": "2 pie 1"}


@pytest.mark.parametrize(
    ("mode", "tool"), [("legacy", "before"), ("2026-07-28", "after"), ("legacy", "after"), ("2026-07-28", "at_once")]
)
async def test_client_with_a_link_is_asked_what_only_it_can_answer(tool: str, mode: str) -> None:
    async with hosted(library().streamable_http_app()) as url, client_of(url, mode=mode, **CALLBACKS) as client:
        asked, results = await client.call_tool(tool, {}), list[str]()

        async def continue_it() -> None:
            results.append(text_of(await resume(client, asked)))

        async with anyio.create_task_group() as group:
            group.start_soon(continue_it)
            assert await Browser(url, "ann").answer_all(link_in(asked), ANSWERS) == "Done"
        assert results == [EXPECTED[tool]]


@pytest.mark.parametrize("tool", list(EXPECTED))
async def test_client_that_shows_links_is_asked_what_only_it_can_answer(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    async with hosted(library().streamable_http_app()) as url, anyio.create_task_group() as group:
        links: list[str] = []

        async def elicited(context: Any, params: Any) -> ElicitResult:
            assert isinstance(params, ElicitRequestURLParams)
            if not links:
                group.start_soon(Browser(url, "ann").answer_all, params.url, ANSWERS)
            links.append(params.url)
            return ElicitResult(action="accept")

        async with client_of(url, elicitation_callback=elicited, **CALLBACKS) as client:
            assert text_of(await client.call_tool(tool, {})) == EXPECTED[tool]
        assert len(set(links)) == 1


async def test_another_client_of_the_user_is_told_what_it_lacks() -> None:
    server = library(["form", "model"])
    async with hosted(server.streamable_http_app()) as url:
        async with client_of(url, **CALLBACKS) as client:
            handle = handle_in(await client.call_tool("anyone", {}))
        async with client_of(url) as other:
            result = await other.call_tool("continue_call", {"handle": handle, "answers": {"size": 4}})
            assert result.is_error
            assert "which this client cannot answer" in text_of(result)
        async with client_of(url, **CALLBACKS) as client:
            assert text_of(await client.call_tool("continue_call", {"handle": handle})) == "4 pie"


def office(**options: Any) -> Server[Any]:
    server = paged("office", **options)

    @server.tool(exactly_once=True)
    async def late(ctx: Context) -> str:
        """Ask, and then read the request."""
        size = await ctx.ask("size", "How many?", int)
        RUNS.append("late")
        for event in RAN:
            event.set()
        return f"{size} {(ctx.headers or {})['x-user']} {get_http_headers()['x-user']}"

    @server.tool()
    def plain(ctx: Context) -> str:
        """Do it in a thread."""
        size = ctx.blocking.ask("size", "How many?", int)
        return f"{size} {get_request().headers['x-user']}"

    @server.tool()
    async def raw(ctx: Context) -> str:
        """Read what fails without a client."""
        await ctx.ask("size", "How many?", int)
        return str(ctx.request_context.request)

    return server


RUNS: list[str] = []
RAN: list[anyio.Event] = []
READ = {"late": "2 ann ann", "plain": "2 ann", "raw": "Error executing tool raw: ctx.request_context.request must"}


@pytest.mark.parametrize(("mode", "tool"), [("2026-07-28", "late"), ("legacy", "plain"), ("2026-07-28", "raw")])
async def test_leg_that_reads_the_request_waits_for_its_client(tool: str, mode: str) -> None:
    RUNS.clear()
    async with hosted(office().streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool(tool, {})
        browser, link = Browser(url, "ann"), link_in(asked)
        page = (await browser.open(link)).text
        assert (await browser.send(link, page, "2")).status_code == 303
        assert text_of(await resume(client, asked)).startswith(READ[tool])
        assert await browser.answer_all(link, {}) == "Done"


async def test_leg_without_its_client_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The leg runs on another instance, and after a restart."""
    caplog.set_level("INFO", logger="roundtrip")
    RUNS.clear()
    RAN[:] = [anyio.Event()]
    path = tmp_path / "calls.db"
    async with hosted(office(ledger=SqliteLedger(path)).streamable_http_app()) as url:
        async with client_of(url) as client:
            asked = await client.call_tool("late", {})
        browser, link = Browser(url, "ann"), link_in(asked)
        assert (await browser.send(link, (await browser.open(link)).text, "2")).status_code == 303
        await browser.open_with(link, "go back to the conversation and ask for the result. This page will")
        with anyio.fail_after(WAIT):
            await RAN[0].wait()
    others = [office(ledger=SqliteLedger(path)).streamable_http_app() for _ in range(2)]
    async with hosted(others[0]) as one, hosted(others[1]) as two, client_of(one) as first, client_of(two) as second:
        results: list[str] = []

        async def continue_with(client: Client) -> None:
            results.append(text_of(await resume(client, asked)))

        async with anyio.create_task_group() as group:
            for client in (first, second) * 2:
                group.start_soon(continue_with, client)
        assert results == ["2 ann ann"] * 4
    assert caplog.text.count("tool 'late' reads its client's request after an answer or an approval") == 1
    # Without the request, and once with it.
    assert RUNS == ["late"] * 2
