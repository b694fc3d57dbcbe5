"""Servers whose tools ask clients with sessions, in several worker processes."""

import os
from typing import Any

from fastmcp import FastMCP
from mcp.server import MCPServer

from roundtrip import Context, Elicit, Server, tool
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install

DONE = "SESSION_SHOPS_DONE"
"""Variable that names the file to which `double` writes each number before it returns."""


def note(number: int) -> None:
    with open(os.environ[DONE], "a", encoding="utf-8") as done:
        done.write(f"{number}\n")


@tool
async def double(number: int, ctx: Context) -> str:
    """Ask for the double of a number."""
    answer = await ctx.ask("double", Elicit(f"Double {number}?", int))
    if DONE in os.environ:
        await ctx.step("note", lambda: note(number))
    return f"{number} {answer}"


@tool
async def process() -> str:
    """Return the id of the worker that has the session."""
    return str(os.getpid())


def server_shop() -> Server[Any]:
    server = Server[Any]("shop")
    server.add_tool(double)
    server.add_tool(process)
    return server


def fastmcp_shop() -> FastMCP[Any]:
    mcp = FastMCP[Any]("shop")
    install_in_fastmcp(mcp)
    mcp.tool(double)
    mcp.tool(process)
    return mcp


def mcpserver_shop() -> MCPServer[Any]:
    server = MCPServer[Any]("shop")
    install(server)
    server.tool()(double)
    server.tool()(process)
    return server
