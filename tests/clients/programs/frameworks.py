"""Call a tool through a framework that is installed beside roundtrip: `python frameworks.py NAME`."""

import asyncio
import sys
from typing import Any

from roundtrip import Context, Server
from roundtrip.testing import served

server = Server[Any]("shop")


@server.tool
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@server.tool
async def book(film: str, ctx: Context) -> str:
    return f"{film}, row {await ctx.ask('row', 'Which row?', int)}"


async def answer(*given: Any) -> dict[str, int]:
    return {"value": 3}


async def call(framework: str, url: str) -> Any:
    match framework:
        case "fastmcp":
            from fastmcp import Client

            async with Client(url, elicitation_handler=answer) as client:
                return (await client.call_tool("book", {"film": "Alien"})).data
        case "pydantic_ai":
            from pydantic_ai.mcp import MCPToolset

            async with MCPToolset(url, elicitation_handler=answer) as tools:
                return await tools.direct_call_tool("book", {"film": "Alien"})
        case "langchain":
            from langchain.mcp import MCPAdapter

            async with MCPAdapter(url) as adapter:
                return await next(one for one in await adapter.list_tools() if one.name == "greet").ainvoke(
                    {"name": "Ann"}
                )
        case "agents":
            from agents.mcp import MCPServerStreamableHttp

            async with MCPServerStreamableHttp({"url": url}) as host:
                return await host.call_tool("greet", {"name": "Ann"})
        case _:
            from strands.tools.mcp import MCPClient

            client = await asyncio.to_thread(MCPClient(url=url).start)
            try:
                return await client.call_tool_async("1", "greet", {"name": "Ann"})
            finally:
                await asyncio.to_thread(client.stop, None, None, None)


async def main() -> None:
    async with served(server) as url:
        print(await call(sys.argv[1], url))


asyncio.run(main())
