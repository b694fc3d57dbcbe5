"""Compare tasks with FastMCP's: `python -m benchmarks.tasks`. If Redis is installed, it starts its own Redis.

All servers run in one process, over the same raw ASGI interface, and take turns. Each has a tool that does nothing. The
rows are the time until a client has a task handle, and the time until a polling client has its result. The last row is
the number of tasks per second when clients begin many at once.
"""

# FastMCP is a peer, not a dependency.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from starlette.types import ASGIApp

from benchmarks.asgi import PATH, Endpoint, serving
from benchmarks.ledgers import own_redis
from benchmarks.workloads import KEY
from roundtrip import Server
from roundtrip.ledger import Ledger, MemoryLedger, RedisLedger, SqliteLedger

_EXTENSION: Final = "io.modelcontextprotocol/tasks"
_POLL_SECONDS: Final = 0.0002
"""Shorter than every measured time, so that it hides none of them."""
_LOST_SECONDS: Final = 60.0
_HEADERS: Final = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {_EXTENSION: {}}},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


@dataclass(slots=True)
class _Peer:
    """One server with its measurements: milliseconds, and tasks per second."""

    name: str
    build: Callable[[], ASGIApp]
    created: list[float] = field(default_factory=list[float])
    completed: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])


def _roundtrip(ledger: Ledger) -> Callable[[], ASGIApp]:
    def build() -> ASGIApp:
        server = Server("bench", keys=[KEY], ledger=ledger, trace=False)

        @server.tool(task=True)
        async def work() -> str:
            return "done"

        return server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)

    return build


def _fastmcp(url: str) -> Callable[[], ASGIApp]:
    def build() -> ASGIApp:
        from fastmcp import FastMCP
        from fastmcp_tasks import TasksExtension

        server: Any = FastMCP("bench")
        server.add_extension(TasksExtension(url=url, concurrency=100))

        @server.tool(task=True)
        async def work() -> str:
            return "done"

        return server.http_app(path=PATH, json_response=True, stateless_http=True)

    return build


async def send_task_request(endpoint: Endpoint, method: str, routed: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    headers: Mapping[str, str] = {**_HEADERS, "mcp-method": method, "mcp-name": routed}
    response = await endpoint.post(json.dumps(body).encode(), headers=headers)
    answer = json.loads(response.body)
    if "result" not in answer:
        raise RuntimeError(f"{method} was answered with {answer}")
    return answer["result"]


async def _create(endpoint: Endpoint) -> str:
    handle = await send_task_request(endpoint, "tools/call", "work", name="work", arguments={})
    if handle.get("resultType") != "task":
        raise RuntimeError(f"expected the handle of a task, got {handle}")
    return handle["taskId"]


async def _complete(endpoint: Endpoint, task_id: str) -> None:
    async with asyncio.timeout(_LOST_SECONDS):
        while (task := await send_task_request(endpoint, "tasks/get", task_id, taskId=task_id))["status"] == "working":  # noqa: ASYNC110 - as clients poll
            await asyncio.sleep(_POLL_SECONDS)
    if task["status"] != "completed" or task["result"]["content"][0]["text"] != "done":
        raise RuntimeError(f"expected a completed task, got {task}")


async def _measure(peer: _Peer, endpoint: Endpoint, *, calls: int, burst: int) -> None:
    for _ in range(calls):
        began = time.perf_counter()
        task_id = await _create(endpoint)
        peer.created.append((time.perf_counter() - began) * 1000)
        await _complete(endpoint, task_id)
        peer.completed.append((time.perf_counter() - began) * 1000)

    async def one() -> None:
        await _complete(endpoint, await _create(endpoint))

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(burst)))
    peer.rates.append(burst / (time.perf_counter() - began))


@contextmanager
def _peers(names: list[str]) -> Generator[list[_Peer]]:
    with TemporaryDirectory() as folder, own_redis(Path(folder)) as url:
        peers = [
            _Peer("roundtrip, memory", _roundtrip(MemoryLedger())),
            _Peer("FastMCP, memory", _fastmcp("memory://")),
            _Peer("roundtrip, SQLite", _roundtrip(SqliteLedger(Path(folder) / "tasks.db"))),
        ]
        if url is not None:
            peers += [
                _Peer("roundtrip, Redis", _roundtrip(RedisLedger(f"{url}/0"))),
                _Peer("FastMCP, Redis", _fastmcp(f"{url}/1")),
            ]
        yield [peer for peer in peers if not names or any(name in peer.name for name in names)]


@asynccontextmanager
async def _served(peers: list[_Peer]) -> AsyncGenerator[list[tuple[_Peer, Endpoint]]]:
    async with AsyncExitStack() as stack:
        yield [(peer, await stack.enter_async_context(serving(peer.build()))) for peer in peers]


async def _run(peers: list[_Peer], *, rounds: int, calls: int, burst: int) -> None:
    async with _served(peers) as served:
        for peer, endpoint in served:
            await _measure(peer, endpoint, calls=3, burst=5)
            peer.created.clear()
            peer.completed.clear()
            peer.rates.clear()
        for number in range(rounds):
            for peer, endpoint in served[number % len(served) :] + served[: number % len(served)]:
                await _measure(peer, endpoint, calls=calls, burst=burst)


def _table(peers: list[_Peer]) -> str:
    lines = [f"{'':20} {'handle, ms':>12} {'result, ms':>12} {'tasks per s':>12}"]
    lines += [
        f"{peer.name:20} {median(peer.created):12.2f} {median(peer.completed):12.2f} {median(peer.rates):12.0f}"
        for peer in peers
    ]
    by_name = {peer.name: peer for peer in peers}
    for where in ("memory", "Redis"):
        own, other = by_name.get(f"roundtrip, {where}"), by_name.get(f"FastMCP, {where}")
        if own is not None and other is not None:
            created, completed = (
                median(getattr(other, row)) / median(getattr(own, row)) for row in ("created", "completed")
            )
            rate = median(own.rates) / median(other.rates)
            lines.append(f"{f'times FastMCP, {where}':20} {created:12.1f} {completed:12.1f} {rate:12.1f}")
    return "\n".join(lines)


def main() -> int:
    """Run the comparison, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: checks everything, measures little")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="turns of each server (default 10)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="servers whose name contains NAME")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with _peers(options.only) as peers:
        rounds, calls, burst = (1, 2, 5) if options.quick else (options.rounds, 20, 20)
        asyncio.run(_run(peers, rounds=rounds, calls=calls, burst=burst))
        sys.stdout.write(_table(peers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
