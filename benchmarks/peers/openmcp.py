"""Show what OpenMCP's gates and dependencies do: `PYTHON benchmarks/peers/openmcp.py`.

OpenMCP is published as `dedalus-mcp`. It needs an SDK before version 2, so it runs in a separate environment, and this
program imports nothing from this repository. docs/comparison.md has the commands.
"""

# The type checker in this environment cannot see that one.
# pyright: basic
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import asyncio
import logging
from importlib.metadata import version
from typing import Any, Final

from dedalus_mcp import MCPServer, tool
from dedalus_mcp.server.dependencies import Depends
from mcp.shared.memory import create_connected_server_and_client_session

# The schema for such a parameter includes its default, which is not JSON.
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}


async def listed(server: Any) -> str:
    async with create_connected_server_and_client_session(server) as client:
        try:
            return ", ".join(f"`{one.name}`" for one in (await client.list_tools()).tools)
        except Exception as error:  # noqa: BLE001 - an error of any kind is a fact
            return f"the list fails: {error}"


async def called(server: Any, name: str, **arguments: Any) -> str:
    async with create_connected_server_and_client_session(server) as client:
        try:
            result = await client.call_tool(name, arguments)
        except Exception as error:  # noqa: BLE001 - an error of any kind is a fact
            return f"error: {error}"
    return " ".join(getattr(one, "text", "") for one in result.content)


def gated(gate: Any) -> MCPServer:
    @tool()
    async def open_tool() -> str:
        return "open"

    @tool(enabled=Depends(gate))
    async def gated_tool() -> str:
        return "gated"

    server = MCPServer("peer")
    server.collect(open_tool, gated_tool)
    return server


async def raising_gate() -> str:
    def gate() -> bool:
        raise RuntimeError("the plans cannot be read")

    return await listed(gated(gate))


async def generator_gate() -> str:
    def gate() -> Any:
        yield False

    return f"lists {await listed(gated(gate))}"


async def hidden_name() -> str:
    server = gated(lambda: False)
    return f"{await called(server, 'gated_tool')} / {await called(server, 'nothing')}"


async def supplied_value() -> str:
    def price() -> str:
        return "the server's"

    @tool(input_schema=_NO_ARGUMENTS)
    async def buy(value: str = Depends(price)) -> str:
        return value

    server = MCPServer("peer")
    server.collect(buy)
    return await called(server, "buy", value="the client's")


async def cycle() -> str:
    def first(value: str) -> str:
        return value

    one = Depends(first)
    one.dependencies = (Depends(first, one),)

    @tool(input_schema=_NO_ARGUMENTS)
    async def buy(value: str = one) -> str:
        return value

    server = MCPServer("peer")
    server.collect(buy)
    return await called(server, "buy")


async def main() -> None:
    print(f"dedalus-mcp {version('dedalus-mcp')}, mcp {version('mcp')}")
    for shown in (raising_gate, generator_gate, hidden_name, supplied_value, cycle):
        print(f"{shown.__name__}: {await shown()}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
