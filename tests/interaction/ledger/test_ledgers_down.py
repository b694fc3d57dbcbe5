"""Ledgers that are gone, stuck, full or held by others: a clear error within a bounded time, and nothing twice."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from roundtrip.ledger import ClaimAnswer, ClaimStatus, Ledger, LedgerDown, RedisLedger, SqliteLedger
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


async def claim(ledger: Ledger, key: str = "call", holder: str = "one") -> ClaimAnswer:
    with anyio.fail_after(WAIT):
        return await ledger.claim(key, "a", holder=holder, lease=60, keep=60)


FAULTS: dict[str, tuple[Callable[[RedisServer], object], Callable[[RedisServer], object]]] = {
    "gone": (lambda redis: redis.kill(), lambda redis: redis.start()),
    "stuck": (lambda redis: redis.stop(), lambda redis: redis.go_on()),
    "read-only": (
        lambda redis: redis.command("config", "set", "min-replicas-to-write", "1"),
        lambda redis: redis.command("config", "set", "min-replicas-to-write", "0"),
    ),
    "full": (
        lambda redis: [redis.command("config", "set", "maxmemory", size) for size in ("1mb", "1")],
        lambda redis: redis.command("config", "set", "maxmemory", "0"),
    ),
}


@needs("redis")
@pytest.mark.parametrize("fault", FAULTS)
async def test_unusable_redis_is_reported_in_time_and_used_again_later(redis: RedisServer, fault: str) -> None:
    ledger = RedisLedger(redis.url, timeout=0.5)
    begin, end = FAULTS[fault]
    epoch = (await claim(ledger)).epoch
    begin(redis)
    try:
        with pytest.raises(LedgerDown, match="the ledger on Redis cannot be used"):
            await claim(ledger, "other")
        with pytest.raises(LedgerDown), anyio.fail_after(WAIT):
            await ledger.settle("call", holder="one", epoch=epoch, result="r", keep=60)
    finally:
        end(redis)
    assert (await claim(ledger, "third")).status is ClaimStatus.GRANTED
    # What it was asked while it was stuck may have been done since.
    assert (await claim(ledger, holder="two")).status in (ClaimStatus.RUNNING, ClaimStatus.SETTLED)
    await ledger.aclose()


@needs("redis")
async def test_cancelled_connection_mixes_up_no_replies(redis: RedisServer) -> None:
    """The reply to an abandoned request must not become the reply to the next one."""
    ledger = RedisLedger(redis.url)
    epoch = (await claim(ledger)).epoch
    await ledger.settle("call", holder="one", epoch=epoch, result="first", keep=60)
    for number in range(50):
        with anyio.move_on_after(0.0002 * (number % 5)):
            await ledger.claim("call", "a", holder="two", lease=60, keep=60)
        assert (await claim(ledger, f"other-{number}")).status is ClaimStatus.GRANTED
    await ledger.aclose()


# SQLite.


@pytest.mark.parametrize("is_freed", [True, False])
async def test_waits_for_a_locked_file_are_equally_long(tmp_path: Path, is_freed: bool) -> None:
    clock, told, pauses = Clock(), list[str](), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(clock())
        await anyio.wait_all_tasks_blocked()
        # A file that is locked for writes can be read meanwhile.
        assert await ledger.wait("other", patience=0) is None
        if is_freed:
            holder.execute("COMMIT")
        clock.advance(seconds)

    ledger = SqliteLedger(tmp_path / "ledger.db", system=System(monotonic=clock, sleep=pause))

    async def begin(number: int) -> None:
        try:
            told.append((await claim(ledger, f"call-{number}")).status.value)
        except LedgerDown as error:
            told.append(str(error).rpartition(": ")[2])

    await claim(ledger)
    holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = clock()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(begin, number)
    ended = "granted" if is_freed else "another process has kept the file locked for 5 seconds"
    assert told == [ended] * 20
    assert pauses == [began] if is_freed else pauses[-1] - began < 6
    holder.close()
    assert (await claim(ledger, "third")).status is ClaimStatus.GRANTED
    await ledger.aclose()
    assert (tmp_path / "ledger.db").stat().st_mode & 0o077 == 0, "it is readable by its owner alone"


async def test_a_ledger_waits_for_no_thread_that_a_body_holds(tmp_path: Path) -> None:
    go_on = threading.Event()
    held = anyio.to_thread.current_default_thread_limiter()
    ledger = SqliteLedger(tmp_path / "ledger.db")
    async with anyio.create_task_group() as group:
        for _ in range(int(held.total_tokens)):
            group.start_soon(anyio.to_thread.run_sync, go_on.wait, WAIT)
        try:
            await anyio.wait_all_tasks_blocked()
            assert held.available_tokens == 0
            for key in ("first", "second"):
                assert (await claim(ledger, key)).status is ClaimStatus.GRANTED
        finally:
            go_on.set()
    await ledger.aclose()


async def test_invalid_or_uncreatable_database_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and long enough to be sure of it " * 40)
    for path in (tmp_path / "text", tmp_path / "missing" / "ledger.db", tmp_path):
        with pytest.raises(LedgerDown, match="cannot be used"):
            await claim(SqliteLedger(path))


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_database_in_memory_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="must name a file"):
        SqliteLedger(path)
