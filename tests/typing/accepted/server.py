"""The server is the SDK's, and its decorators keep the types of functions."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, assert_type

from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature

from roundtrip import Context, Event, InvalidSignature, Resolve, RoundtripError, Server, State, Step


def watch(step: Step) -> None:
    assert_type(step.source, State)
    assert_type(step.event, Event)
    assert_type(step.round, int)


server = Server("cinema", keys=["k" * 32, b"k" * 33], ttl=60, max_age=600.0, build="2026-11", trace=watch)
sdk_server: MCPServer[Any] = server
unbound = Server("cinema", principal=False, audience="cinema", encrypt=True)


def rows() -> list[str]:
    return ["front", "back"]


@server.tool(ttl=60, max_age=600)
async def book(film: str, rows: Annotated[list[str], Resolve(rows)], ctx: Context) -> str:
    sdk_context: SdkContext[Any, Any] = ctx
    await sdk_context.report_progress(1)
    return f"{film}: {rows[0]}"


@server.tool("films", title="All films", structured_output=False)
def films() -> list[str]:
    return []


asynchronous: Callable[[str, list[str], Context], Coroutine[Any, Any, str]] = book
assert_type(films(), list[str])
awaitable: Awaitable[str] = book("Solaris", ["back"], Context(mcp_server=server))

server.add_tool(book, "book_v2", max_age=60, ttl=30)
Client(server, mode="2026-07-28")


def broken(error: InvalidSignature) -> tuple[RoundtripError, SdkInvalidSignature]:
    return error, error
