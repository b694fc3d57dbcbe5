"""Compare calls with and without `install`, alternating in one run. The tool asks nothing.

python -m benchmarks.adapters            # FastMCP and the SDK's class, in both eras
python -m benchmarks.adapters --calls 200
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
from fastmcp import FastMCP
from mcp.client import Client
from mcp.server import MCPServer

from roundtrip.adapters.finding import low_level
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install as install_in_sdk
from roundtrip.testing import Era

MAX_RATIO: Final = 1.1
"""The limit for the cost with `install`, relative to the cost without it."""

_ROUNDS: Final = 30


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _fastmcp(installs: bool) -> Any:
    mcp = FastMCP[Any]("sums")
    if installs:
        install_in_fastmcp(mcp, keys=["7f" * 32])
    mcp.tool(add)
    return low_level(mcp)


def _mcpserver(installs: bool) -> Any:
    server = MCPServer[Any]("sums")
    if installs:
        install_in_sdk(server, keys=["7f" * 32])
    server.tool()(add)
    return server


async def _seconds(client: Client, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        await client.session.call_tool("add", {"a": 1, "b": 2})
    return (time.perf_counter() - began) / calls


async def compare(make: Callable[[bool], Any], era: Era, calls: int) -> tuple[float, float]:
    """Return the median microseconds without `install`, and the median ratio with it."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(make(installs), mode=era.mode)) for installs in (False, True)]
        for client in clients:
            await _seconds(client, calls)
        plain: list[float] = []
        ratios: list[float] = []
        for number in range(_ROUNDS):
            # Alternate, so that neither is always first.
            first = number % 2
            times = {place: await _seconds(clients[place], calls) for place in (first, 1 - first)}
            plain.append(times[0] * 1e6)
            ratios.append(times[1] / times[0])
    return statistics.median(plain), statistics.median(ratios)


async def _report(calls: int) -> bool:
    within_limit = True
    for name, make in (("FastMCP", _fastmcp), ("MCPServer", _mcpserver)):
        for era in (Era.RETRY, Era.LIVE):
            microseconds, ratio = await compare(make, era, calls)
            print(f"{name:10} {era.name.lower():6} {microseconds:7.0f} us without install, {ratio:.3f} of it with")
            within_limit = within_limit and ratio <= MAX_RATIO
    return within_limit


def main() -> int:
    """Print the figures, and return 1 if a ratio is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50, help="calls of a turn (default: %(default)s)")
    return 0 if anyio.run(_report, parser.parse_args().calls) else 1


if __name__ == "__main__":
    raise SystemExit(main())
