"""The server is the SDK's, and its decorators keep the types of functions."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Annotated, Any, assert_type

from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature

from roundtrip import (
    Context,
    Depends,
    Event,
    InvalidSignature,
    Resolve,
    RoundtripError,
    Server,
    State,
    ToolResult,
    Transition,
    get_context,
    get_http_headers,
    tool,
)


def watch(step: Transition) -> None:
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


asynchronous: Callable[[str, list[str], Context], Coroutine[Any, Any, str]] = book
awaitable: Awaitable[str] = book("Solaris", ["back"], Context(mcp_server=server))

server.add_tool(book, "book_v2", max_age=60, ttl=30)


def account() -> str:
    return "ada"


async def database() -> AsyncGenerator[str]:
    yield "session"


def is_ada(account: str) -> bool:
    return account == "ada"


@server.tool(enabled=Depends(is_ada, account), tags={"office"}, timeout=1, version="1.0", dependencies=[account])
async def refund(number: int, db: str = Depends(database), who: Annotated[str, Depends(account)] = "") -> ToolResult:
    return ToolResult(content=f"{number} {db} {who}")


class Box:
    @tool
    def sell(self, film: str) -> str:
        return film


assert_type(server.tool(rows, name="rows_too")(), list[str])
assert_type(Box().sell("Solaris"), str)
server.add_tool(Box().sell, enabled=is_ada)
server.disable(tags={"office"}, names="book")
server.overrides[account] = lambda: "eve"
with server.overrides({account: lambda: "eve"}):
    context: Context = get_context()
    assert_type(context.request_id, str)
assert_type(get_http_headers(), dict[str, str])
Client(server, mode="2026-07-28")


def broken(error: InvalidSignature) -> tuple[RoundtripError, SdkInvalidSignature]:
    return error, error
