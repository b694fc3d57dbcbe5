"""Samples and roots in calls whose users answer on pages: only the client's software answers them."""

from typing import Any

import pytest
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

from roundtrip import Context, Elicit, ListRoots, Pages, Sample, Server
from tests.hosts import hosted
from tests.interaction.pages.test_question_pages import (
    BASE,
    KEY,
    Browser,
    client_of,
    declare_only,
    handle_in,
    link_in,
    reader,
    text_of,
    user_of,
)

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


def library(ladder: Any = None, **options: Any) -> Server[Any]:
    pages = Pages(base_url=BASE, authenticate=reader, wait=2, **options)
    server = Server[Any]("library", keys=[KEY], principal=user_of, pages=pages, ladder=ladder)

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


@ERAS
@pytest.mark.parametrize("tool", list(EXPECTED))
async def test_client_with_a_link_is_asked_what_only_it_can_answer(tool: str, mode: str) -> None:
    async with hosted(library().streamable_http_app()) as url, client_of(url, mode=mode, **CALLBACKS) as client:
        result = asked = await client.call_tool(tool, {})
        browser = Browser(url, "ann")
        for _ in range(4):
            if "https://" not in text_of(result):
                break
            page = (await browser.open(link_in(asked))).text
            if "<form" in page:
                await browser.send(link_in(asked), page, "2" if "How many" in page else "3")
            result = await client.call_tool("continue_call", {"handle": handle_in(asked)})
        assert text_of(result) == EXPECTED[tool]


@pytest.mark.parametrize("tool", list(EXPECTED))
async def test_client_that_shows_links_is_asked_what_only_it_can_answer(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    async with hosted(library().streamable_http_app()) as url:
        browser, pages = Browser(url, "ann"), list[str]()

        async def elicited(context: Any, params: Any) -> ElicitResult:
            assert isinstance(params, ElicitRequestURLParams)
            page = (await browser.open(params.url)).text
            if "<form" in page:
                pages.append(params.url)
                await browser.send(params.url, page, "2" if "How many" in page else "3")
            return ElicitResult(action="accept")

        async with client_of(url, elicitation_callback=elicited, **CALLBACKS) as client:
            assert text_of(await client.call_tool(tool, {})) == EXPECTED[tool]
        assert len(pages) == (2 if tool == "after" else 1)


@ERAS
async def test_model_may_answer_before_the_client_samples(mode: str) -> None:
    server = library(["form", "model"])
    async with hosted(server.streamable_http_app()) as url, client_of(url, mode=mode, **CALLBACKS) as client:
        asked = await client.call_tool("anyone", {})
        handle = handle_in(asked)
        result = await client.call_tool("continue_call", {"handle": handle, "answers": {"size": 4}})
        assert text_of(result) == "4 pie"


@ERAS
async def test_another_client_of_the_user_is_told_what_it_lacks(mode: str) -> None:
    server = library(["form", "model"])
    async with hosted(server.streamable_http_app()) as url:
        async with client_of(url, mode=mode, **CALLBACKS) as client:
            handle = handle_in(await client.call_tool("anyone", {}))
        async with client_of(url, mode=mode) as other:
            result = await other.call_tool("continue_call", {"handle": handle, "answers": {"size": 4}})
            assert result.is_error
            assert "needs a client that" in text_of(result)
        async with client_of(url, mode=mode, **CALLBACKS) as client:
            assert text_of(await client.call_tool("continue_call", {"handle": handle})) == "4 pie"
