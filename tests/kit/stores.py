"""Ledgers of every kind, their servers, and task stores with a clock that tests set.

A folder gets the fixtures when its `conftest.py` imports them.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.connections.postgres import PostgresConnections
from roundtrip.connections.redis import RedisConnections, RedisScript
from roundtrip.ledger import MemoryLedger, PostgresLedger, RedisLedger, SqliteLedger
from roundtrip.system import SYSTEM, System
from roundtrip.testing import Clock
from tests.kit.hosts import free_port
from tests.kit.postgres_server import PostgresServer, postgres_server
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer, redis_server
from tests.kit.waiting import until_plain

KINDS: Final[tuple[Any, ...]] = (
    "memory",
    "sqlite",
    pytest.param("redis", marks=needs("redis")),
    pytest.param("postgres", marks=needs("postgres")),
)
"""The ledger kinds, as parameter values."""

SHARED: Final = KINDS[1:]
"""The kinds that several processes can share."""
AnyLedger = MemoryLedger | SqliteLedger | RedisLedger | PostgresLedger

_NAMES: Final = itertools.count()
_SQL_CLOCK: Final = """
CREATE TABLE {s}.turned (seconds double precision);
INSERT INTO {s}.turned VALUES (0);
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS double precision LANGUAGE sql VOLATILE AS
    'SELECT seconds FROM {s}.turned';
"""


class Servers:
    """One test module's servers, each started on first use."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def redis(self) -> RedisServer:
        return self._stack.enter_context(redis_server())

    @cached_property
    def postgres(self) -> PostgresServer:
        return self._stack.enter_context(postgres_server())


def location_of(kind: str, started: Servers, folder: Path) -> str:
    """Return a new location for a ledger, as `ledger_at` reads it in any process."""
    name = f"s{next(_NAMES)}"
    match kind:
        case "sqlite":
            return f"sqlite {folder / 'tasks.db'}"
        case "redis":
            return f"redis {started.redis.url} {name}"
        case _:
            return f"postgres {started.postgres.url} {name}"


def ledger_at(place: str, **options: Any) -> AnyLedger:
    """Return a ledger at a location."""
    match place.split(" "):
        case ["sqlite", path]:
            return SqliteLedger(path)
        case ["redis", url, name]:
            return RedisLedger(url, prefix=name, **options)
        case ["postgres", dsn, name]:
            return PostgresLedger(dsn, schema=name, **options)
        case _:
            raise ValueError(f"{place!r} is no place of a ledger")


@contextmanager
def servers() -> Generator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="module")
def started() -> Generator[Servers]:
    with servers() as running:
        yield running


@pytest.fixture
def redis(started: Servers) -> RedisServer:
    """Return a running, empty server."""
    started.redis.command("flushall")
    return started.redis


@pytest.fixture(scope="module")
def postgres(started: Servers) -> PostgresServer:
    return started.postgres


@pytest.fixture(scope="module")
def cluster() -> Generator[str]:
    """Yield a one-node cluster's URL."""
    port, bus = str(free_port()), str(free_port())
    options = ["--cluster-enabled", "yes", "--port", port, "--cluster-port", bus, "--bind", "127.0.0.1"]
    with redis_server(*options, "--cluster-announce-ip", "127.0.0.1") as server:
        assert server.command("cluster", "addslotsrange", "0", "16383") == "OK"
        until_plain(lambda: "cluster_state:ok" in server.command("cluster", "info"), what="the cluster")
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture(params=KINDS)
async def ledger(request: pytest.FixtureRequest, started: Servers, tmp_path: Path) -> AsyncGenerator[AnyLedger]:
    """Yield a new ledger for each kind."""
    made = ledger_of(request.param, started, tmp_path)
    yield made
    await made.aclose()


def ledger_of(kind: str, started: Servers, folder: Path, *, system: System = SYSTEM) -> AnyLedger:
    """Return a new, separate ledger of a kind. In-process ledgers can have another clock."""
    match kind:
        case "memory":
            return MemoryLedger(system=system)
        case "sqlite":
            return SqliteLedger(folder / f"s{next(_NAMES)}.db", durable=False, system=system)
        case _:
            return ledger_at(location_of(kind, started, folder))


@asynccontextmanager
async def clock_ledger(kind: str, started: Servers, folder: Path, clock: Clock) -> AsyncGenerator[AnyLedger]:
    """Yield a ledger whose task store reads a test's clock."""
    ledger = ledger_of(kind, started, folder, system=System(time=clock))
    if isinstance(ledger, RedisLedger):
        _set_redis_clock(ledger._connections, clock)  # pyright: ignore[reportPrivateUsage]
    elif isinstance(ledger, PostgresLedger):
        _set_postgres_clock(ledger._connections, clock)  # pyright: ignore[reportPrivateUsage]
    try:
        yield ledger
    finally:
        await ledger.aclose()


def _set_redis_clock(connections: RedisConnections, clock: Clock) -> None:
    """Let scripts read the test's clock: set its time before each script."""
    run = connections.run

    async def turned(script: RedisScript, key: str, args: Any) -> Any:
        text = script.text.replace("redis.call('TIME')", "split_time(redis.call('GET', KEYS[1] .. ':clock'))")
        split = "local function split_time(t) local s, m = string.match(t, '(%d+)%.(%d+)') return {s, m} end\n"
        await connections.command("SET", f"{key}:clock", f"{clock():.6f}")
        return await run(RedisScript(split + text), key, args)

    connections.run = turned


def _set_postgres_clock(connections: PostgresConnections, clock: Clock) -> None:
    """Let statements read the test's clock: set its time before each statement."""
    fetch = connections.fetch
    is_turned, lock = False, asyncio.Lock()

    async def turned(statement: str, *values: Any) -> Any:
        nonlocal is_turned
        async with lock:
            if not is_turned:
                await fetch("SELECT 1")
                for part in _SQL_CLOCK.split(";\n")[:3]:
                    await fetch(part)
                is_turned = True
        await fetch("UPDATE {s}.turned SET seconds = $1", clock())
        return await fetch(statement, *values)

    connections.fetch = turned
