"""Servers of other classes, which `roundtrip serve` serves in tests."""

import os
from typing import Any

from fastmcp import FastMCP
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from roundtrip import Context, tool
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import bind, install
from roundtrip.ledger import MemoryLedger, SqliteLedger

LEDGER = "OTHER_SHOPS_LEDGER"
BOOKED = "OTHER_SHOPS_BOOKED"


def note(film: str) -> None:
    with open(os.environ[BOOKED], "a", encoding="utf-8") as booked:
        booked.write(f"{film}\n")


@tool(exactly_once=True, confirm="Book {film}?")
async def book(film: str, ctx: Context) -> str:
    """Book seats."""
    seats = await ctx.ask("seats", "How many?", int)
    await ctx.step("note", lambda: note(film))
    return f"{film}, {seats}"


async def ping() -> str:
    """Return a word."""
    return "pong"


def fastmcp_shop() -> FastMCP[Any]:
    mcp = FastMCP[Any]("shop")
    install_in_fastmcp(mcp, ledger=SqliteLedger(os.environ[LEDGER]))
    mcp.tool(book)
    mcp.tool(ping)

    @mcp.custom_route("/upload", methods=["POST"])
    async def upload(request: Request) -> PlainTextResponse:
        """Return the size of a body."""
        return PlainTextResponse(str(len(await request.body())))

    del upload
    return mcp


def mcpserver_shop() -> MCPServer[Any]:
    server = MCPServer[Any]("shop")
    install(server, ledger=SqliteLedger(os.environ[LEDGER]))
    server.tool()(book)
    server.tool()(ping)
    return server


def low_level_shop() -> LowLevelServer[Any]:
    tools = bind(book, ping)
    server = LowLevelServer[Any]("shop", on_list_tools=tools.list_tools, on_call_tool=tools)
    install(server, ledger=SqliteLedger(os.environ[LEDGER]))
    return server


def mounting_shop() -> FastMCP[Any]:
    """Return a server whose only tool that runs exactly once is on a mounted one."""
    mcp, child = FastMCP[Any]("shop"), FastMCP[Any]("child")
    install_in_fastmcp(mcp, ledger=MemoryLedger())
    install_in_fastmcp(child, ledger=MemoryLedger())
    child.tool(book)
    mcp.mount(child, namespace="below")
    return mcp


def plain_shop() -> FastMCP[Any]:
    """Return a server without roundtrip."""
    mcp = FastMCP[Any]("shop")
    mcp.tool(ping)
    return mcp
