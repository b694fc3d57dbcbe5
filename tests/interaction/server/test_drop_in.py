"""Features of the SDK work as before: prompts, resources, completions, extensions, prepared tools, lifespan."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from mcp.client import advertise
from mcp.server import MCPServer
from mcp.server.extension import Extension, ToolBinding
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import (
    CallToolResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

from roundtrip import Context, Resolve, Server
from roundtrip.testing import Era
from tests.kit.players import Person, call, connect, text_of
from tests.kit.shops import Choice, sure

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    title: str
    copies: int


async def confirmed(title: str, choice: Annotated[Choice, Resolve(sure)]) -> str:
    """Confirm a title."""
    return f"{title} {choice.ok}"


async def test_prompts_resources_templates_and_completions_work_as_before(era: Era) -> None:
    server = Server("shop", instructions="Ask.")

    @server.prompt()
    def review(title: str) -> str:
        return f"Review {title}"

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.resource("shop://books/{title}")
    def book(title: str) -> str:
        return f"About {title}"

    @server.completion()
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        return Completion(values=[title for title in ("Dune", "Emma") if title.startswith(argument.value)])

    async with connect(server, era) as client:
        prompt = await client.get_prompt("review", {"title": "Dune"})
        (plain,) = (await client.read_resource("shop://hours")).contents
        (filled,) = (await client.read_resource("shop://books/Emma")).contents
        completion = await client.complete(
            PromptReference(type="ref/prompt", name="review"), {"name": "title", "value": "D"}
        )
        templates = await client.list_resource_templates()
    assert isinstance(prompt.messages[0].content, TextContent)
    assert prompt.messages[0].content.text == "Review Dune"
    assert isinstance(plain, TextResourceContents)
    assert isinstance(filled, TextResourceContents)
    assert (plain.text, filled.text) == ("9 to 5", "About Emma")
    assert completion.completion.values == ["Dune"]
    assert [template.uri_template for template in templates.resource_templates] == ["shop://books/{title}"]


async def test_the_lifespan_reaches_tools_and_resolvers(era: Era) -> None:
    @dataclass
    class Shelf:
        books: dict[str, int]

    @asynccontextmanager
    async def lifespan(server: MCPServer[Shelf]) -> AsyncGenerator[Shelf]:
        yield Shelf({"Dune": 7})

    server = Server("shop", lifespan=lifespan)

    async def stock(title: str, ctx: Context[Shelf, Any]) -> int:
        return ctx.request_context.lifespan_context.books[title]

    @server.tool()
    async def look(title: str, ctx: Context[Shelf, Any], copies: Annotated[int, Resolve(stock)]) -> str:
        return f"{copies} {len(ctx.request_context.lifespan_context.books)}"

    assert text_of(await call(server, era, "look", {"title": "Dune"})) == "7 1"


class Confirming(Extension):
    identifier = "com.example/confirming"

    def tools(self) -> Sequence[ToolBinding]:
        return [ToolBinding(confirmed, meta={"by": "extension"})]


async def test_prepared_tools_and_tools_of_extensions_may_ask(era: Era) -> None:
    async def plain(title: str) -> str:
        return title.upper()

    prepared = [SdkTool.from_function(plain), SdkTool.from_function(confirmed, name="sure")]
    server = Server("shop", tools=prepared, extensions=[Confirming()])
    person = Person({"ok": True}, {"ok": False})
    async with connect(server, era, person, extensions=[advertise("com.example/confirming")]) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        told = [text_of(await client.call_tool(name, {"title": "Dune"})) for name in tools]
    assert dict(zip(tools, told, strict=True)) == {"plain": "DUNE", "sure": "Dune True", "confirmed": "Dune False"}
    assert list(tools["sure"].input_schema["properties"]) == ["title"]
    assert tools["confirmed"].meta == {"by": "extension"}


async def test_a_tool_is_listed_as_the_sdk_lists_it(era: Era) -> None:
    async def report(title: str, copies: int = 1) -> Report:
        """Report on a title."""
        return Report(title=title, copies=copies)

    options: dict[str, Any] = {
        "title": "A report",
        "annotations": ToolAnnotations(read_only_hint=True),
        "meta": {"team": "books"},
    }
    listings: list[Any] = []
    results: list[CallToolResult] = []
    for server in (Server("shop"), MCPServer("shop")):
        server.add_tool(report, **options)
        async with connect(server, era) as client:
            listings.append((await client.list_tools()).tools)
            results.append(await client.call_tool("report", {"title": "Dune"}))
            results.append(await client.call_tool("report", {"copies": "many"}))
            results.append(await client.call_tool("nonesuch"))
    assert listings[0] == listings[1]
    assert results[:3] == results[3:]
    assert results[0].structured_content == {"title": "Dune", "copies": 1}


async def test_server_side_call_reports_a_missing_client() -> None:
    server = Server("shop")
    server.add_tool(confirmed)

    @server.tool()
    async def upper(title: str) -> str:
        return title.upper()

    result = await server.call_tool("upper", {"title": "dune"})
    assert isinstance(result, CallToolResult)
    assert text_of(result) == "DUNE"
    with pytest.raises(Exception, match="call the tool through a client"):
        await server.call_tool("confirmed", {"title": "Dune"})
