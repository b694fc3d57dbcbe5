"""Measure a worker among many waiting tasks: `python -m benchmarks.waiting`.

It fills stores on SQLite, Redis and PostgreSQL with few and with many tasks that wait for days, and starts a server
process on each. It prints the server's memory and the time to poll one task, among many and as ratios of many to few.
The exit code is 1 if a ratio is above its limit. It starts its own database servers on the loopback interface, if their
programs are installed.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.asgi import PATH, Endpoint, serving
from benchmarks.ledgers import own_redis
from benchmarks.tasks import send_task_request
from benchmarks.workloads import KEY
from roundtrip import Context, Server
from roundtrip.ledger import PostgresLedger, RedisLedger, SqliteLedger
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry

_FEW: Final = 100
_DAYS: Final = 3 * 24 * 3600.0
_SETTLE_SECONDS: Final = 3.0
_AT_ONCE: Final = 64
_MEMORY_LIMIT: Final = 1.05
_POLL_LIMIT: Final = 1.5
AnyLedger = SqliteLedger | RedisLedger | PostgresLedger


def _ledger(kind: str, where: str) -> AnyLedger:
    match kind:
        case "SQLite":
            return SqliteLedger(where, durable=False)
        case "Redis":
            return RedisLedger(where.partition("#")[0], prefix=where.partition("#")[2])
        case _:
            return PostgresLedger(where.partition("#")[0], schema=where.partition("#")[2])


def _server(ledger: AnyLedger) -> Server[Any]:
    server = Server[Any]("bench", keys=[KEY], ledger=ledger, trace=False)

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        await ctx.sleep(_DAYS)
        return "done"

    return server


async def _fill(ledger: AnyLedger, number: int) -> None:
    """Add waiting tasks. Their content is unreadable, but nothing is due before the benchmark ends."""
    now = time.time()
    places = asyncio.Semaphore(_AT_ONCE)

    async def add(call: int) -> None:
        async with places:
            entry = CallEntry(
                f"call-{call:08}", "work", now, now + 2 * _DAYS, StoredState.WAITING, due=now + _DAYS, updated=now
            )
            entry.content = "x" * 1500
            await ledger.tasks.add(entry)

    for first in range(0, number, 1000):
        await asyncio.gather(*(add(call) for call in range(first, min(number, first + 1000))))


@asynccontextmanager
async def _waiting(server: Server[Any]) -> AsyncGenerator[tuple[Endpoint, str]]:
    """Serve, and yield a task that waits."""
    app = server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)
    async with serving(app) as endpoint:
        handle = await send_task_request(endpoint, "tools/call", "work", name="work", arguments={})
        await asyncio.sleep(_SETTLE_SECONDS)
        yield endpoint, handle["taskId"]


async def _poll(endpoint: Endpoint, task_id: str) -> float:
    began = time.perf_counter()
    await send_task_request(endpoint, "tasks/get", task_id, taskId=task_id)
    return time.perf_counter() - began


async def _polls(ledgers: list[AnyLedger], *, rounds: int) -> list[float]:
    """Return the median poll time on each ledger, alternating between ledgers."""
    async with contextlib.AsyncExitStack() as stack:
        tasks = [await stack.enter_async_context(_waiting(_server(ledger))) for ledger in ledgers]
        times: list[list[float]] = [[] for _ in tasks]
        for _ in range(rounds):
            for number in random.sample(range(len(tasks)), len(tasks)):
                times[number].append(await _poll(*tasks[number]))
        return [median(each) for each in times]


def _memory(kind: str, where: str) -> int:
    """Return the kilobytes that a process uses while it serves and runs due tasks for some seconds."""
    command = [sys.executable, "-m", "benchmarks.waiting", "--serve", kind, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return int(done.stdout)


async def _serve_and_tell(kind: str, where: str) -> None:
    async with _waiting(_server(_ledger(kind, where))):
        print(_resident_kilobytes())


def _resident_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@contextmanager
def _places(kinds: list[str]) -> Generator[list[tuple[str, str, str]]]:
    """Yield the store kinds, each with one location for few tasks and one for many."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        found = [("SQLite", f"{folder}/few.db", f"{folder}/many.db")]
        if (url := stack.enter_context(own_redis(folder))) is not None:
            found.append(("Redis", f"{url}#few", f"{url}#many"))
        from tests.kit.postgres_server import is_installed, postgres_server  # its programs may be missing

        if is_installed():
            dsn = stack.enter_context(postgres_server()).url
            found.append(("Postgres", f"{dsn}#few", f"{dsn}#many"))
        yield [place for place in found if not kinds or place[0] in kinds]


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, metavar="N", help="the many tasks (default 100000)")
    parser.add_argument("--polls", type=int, default=500, metavar="N", help="polls on each store (default 500)")
    parser.add_argument("--only", action="append", default=[], choices=["SQLite", "Redis", "Postgres"])
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.serve:
        asyncio.run(_serve_and_tell(*options.serve))
        return 0
    print(f"{'':10} {'memory, MiB':>12} {'ratio':>6} {'poll, ms':>10} {'ratio':>6}   ({options.tasks} to {_FEW} tasks)")
    missed = False
    with _places(options.only) as places:
        for kind, few, many in places:
            for where, number in ((few, _FEW), (many, options.tasks)):
                asyncio.run(_fill(_ledger(kind, where), number))
            memory = _memory(kind, many)
            growth = memory / _memory(kind, few)
            polls = asyncio.run(_polls([_ledger(kind, few), _ledger(kind, many)], rounds=options.polls))
            slower = polls[1] / polls[0]
            print(f"{kind:10} {memory / 1024:12.1f} {growth:6.2f} {polls[1] * 1000:10.2f} {slower:6.2f}", flush=True)
            missed = missed or growth > _MEMORY_LIMIT or slower > _POLL_LIMIT
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
