"""Worker threads return their results; an abandoned one keeps its slot until its function returns."""

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

import anyio
import pytest
from anyio.abc import TaskGroup

from roundtrip.errors import ThreadsExhausted
from roundtrip.threads.leg_threads import LegThreads, Pace
from roundtrip.threads.slots import SHARED, Pool
from roundtrip.threads.workers import Work
from tests.kit.held_threads import Held
from tests.kit.waiting import WAIT, until, until_plain

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class RunInPool(Protocol):
    async def __call__(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T: ...


async def run_in_thread(
    call: Callable[[], T], /, *, pool: Pool = SHARED, owner: Hashable = None, leaves: bool = False
) -> T:
    threads = LegThreads(owner, leaves=leaves)
    try:
        return await threads.run(call, pool=pool)
    finally:
        threads.close()


run_leaving = partial(run_in_thread, leaves=True)
runners = pytest.mark.parametrize("run", [run_in_thread, run_leaving], ids=["staying", "leaving"])


async def leave(held: Held, pool: Pool) -> LegThreads:
    """Leave a thread of a pool behind."""
    threads = LegThreads(leaves=True)
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(threads.run, held, pool=pool))
            await until(lambda: held.started)
            group.cancel_scope.cancel()
    assert threads.left == 1
    threads.close()
    return threads


@asynccontextmanager
async def busy(held: Held, pool: Pool) -> AsyncGenerator[TaskGroup]:
    """Occupy a thread of a pool meanwhile."""
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run_in_thread, held, pool=pool))
            await until(lambda: held.started)
            try:
                yield group
            finally:
                held.release.set()


@asynccontextmanager
async def crowd(owners: int, pool: Pool) -> AsyncGenerator[list[int]]:
    """Have each of these owners hold as many threads as it gets, of sixty; yield the owners of the begun calls."""
    release, begun = threading.Event(), list[int]()

    def hold(owner: int) -> None:
        begun.append(owner)
        release.wait(WAIT)

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            for owner in range(owners):
                for _ in range(60):
                    group.start_soon(partial(run_in_thread, partial(hold, owner), pool=pool, owner=owner))
            try:
                yield begun
            finally:
                release.set()


async def runs_again(run: RunInPool, pool: Pool) -> None:
    async def is_free() -> bool:
        try:
            return await run(lambda: 1, pool=pool) == 1
        except ThreadsExhausted:
            return False

    await until(is_free)


@runners
async def test_function_runs_in_a_thread_and_returns_its_result(run: RunInPool) -> None:
    assert await run(threading.get_ident) != threading.get_ident()


@runners
async def test_function_exception_is_returned(run: RunInPool) -> None:
    def crash() -> None:
        raise ValueError("crash")

    with pytest.raises(ValueError, match="crash") as caught:
        await run(crash)
    assert caught.traceback[-1].name == "crash"

    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await run(stop)


@runners
async def test_pool_rejects_work_while_all_threads_are_lost(run: RunInPool, held: Held) -> None:
    pool = Pool(1)
    await leave(held, pool)
    with pytest.raises(ThreadsExhausted, match="in all 1 threads") as caught:
        await run(lambda: 1, pool=pool)
    assert caught.value.threads == 1
    # Another pool has threads of its own.
    assert await run(lambda: 1) == 1
    held.release.set()
    await runs_again(run, pool)


@runners
async def test_waiting_function_runs_once_an_abandoned_thread_ends(run: RunInPool, held: Held) -> None:
    pool = Pool(2)
    await leave(held, pool)
    results: list[str] = []

    async def wait() -> None:
        results.append(await run(lambda: "waited", pool=pool))

    async with busy(Held(), pool) as group:
        group.start_soon(wait)
        await anyio.sleep(0.01)
        held.release.set()
        await until(lambda: results)
    assert results == ["waited"]


async def test_function_of_an_ended_call_never_runs() -> None:
    pool, ran, threads = Pool(1), list[str](), LegThreads(leaves=True)
    for _ in range(3):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await threads.run(lambda: ran.append("ran"), pool=pool)
    assert (ran, threads.left) == ([], 0)
    assert await threads.run(lambda: "free", pool=pool) == "free"


async def test_exception_of_an_abandoned_thread_is_only_logged(caplog: pytest.LogCaptureFixture, held: Held) -> None:
    caplog.set_level(logging.INFO, logger="roundtrip")
    pool = Pool(1)

    class Crash(Held):
        def __call__(self) -> str:
            super().__call__()
            raise ValueError("too late")

    crash = Crash()
    await leave(crash, pool)
    crash.release.set()
    await runs_again(run_in_thread, pool)
    (record,) = caplog.records
    assert record.getMessage() == "a function raised an exception in a thread whose call had ended"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "too late"


def test_pool_keeps_no_loop() -> None:
    async def use() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert await run_in_thread(lambda: 1) == 1
        return weakref.ref(asyncio.get_running_loop())

    async def nothing() -> None: ...

    gone = asyncio.run(use())
    # asyncio itself keeps the latest loop.
    asyncio.run(nothing())
    # The thread may still be within its last statement, which refers to the loop.
    until_plain(lambda: gc.collect() < 0 or gone() is None)


async def test_left_function_keeps_no_other_waiting(held: Held) -> None:
    threads = LegThreads(leaves=True, home="home")
    with anyio.fail_after(WAIT):
        for lane in ("home", None):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(threads.run, held, lane=lane))
                await until(lambda: held.started > threads.left)
                group.cancel_scope.cancel()
            assert await threads.run(lambda: "next") == "next"
            assert await threads.run(lambda: "next", lane="home") == "next"
    threads.close()
    assert threads.left == 2


async def test_loop_waits_only_for_what_was_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, waited = Pace(), list[bool]()
    threads = LegThreads(pace=pace)
    wait_briefly = Work.wait_briefly

    def noting(work: Work) -> bool:
        waited.append(wait_briefly(work))
        return waited[-1]

    monkeypatch.setattr(Work, "wait_briefly", noting)
    event = threading.Event()

    async def has_waited() -> bool:
        await threads.run(lambda: 1, is_alone=True)
        return True in waited

    # A busy machine may take its time to run a function at once.
    await until(has_waited)
    while not pace.is_quick:
        pace.note(0.0)
    waited.clear()

    async def release() -> None:
        event.set()

    others = [LegThreads(pace=pace) for _ in range(10)]
    async with anyio.create_task_group() as group:
        for other in others:
            # Each needs the loop, which waits for the first only.
            group.start_soon(partial(other.run, lambda: event.wait(WAIT), is_alone=True))
        group.start_soon(release)
    assert waited == [False]
    for one in (threads, *others):
        one.close()


@runners
async def test_exit_raised_in_a_thread_reaches_its_caller(run: RunInPool) -> None:
    for error in (SystemExit, KeyboardInterrupt, GeneratorExit):
        pool = Pool(1)

        def leave_program(error: type[BaseException] = error) -> None:
            raise error("now")

        with pytest.raises(error, match="now"):
            await run(leave_program, pool=pool)
        assert pool.slots().limiter.borrowed_tokens == 0
        assert await run(lambda: 1, pool=pool) == 1


def test_a_thread_may_end_after_its_event_loop(held: Held) -> None:
    pool = Pool(1)
    before = set(threading.enumerate())

    async def lose() -> None:
        await leave(held, pool)
        with pytest.raises(ThreadsExhausted):
            await run_in_thread(lambda: 1, pool=pool)

    async def use() -> int:
        return await run_in_thread(lambda: 1, pool=pool)

    anyio.run(lose)
    # Another loop has the same number of threads, and does not wait for those of the first.
    assert anyio.run(use) == 1
    held.release.set()
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in started)


async def test_however_many_owners_are_slow_another_finds_a_thread() -> None:
    pool = Pool(60, fair=True)
    async with crowd(10, pool) as begun:
        await until(lambda: len(begun) >= 45 + 8)
        assert await run_in_thread(lambda: "served", pool=pool, owner="another") == "served"
    assert len(begun) == 600
    assert pool.slots().limiter.borrowed_tokens == 0


async def test_owner_has_at_most_forty_threads() -> None:
    async with crowd(5, SHARED) as begun:
        await until(lambda: len(begun) >= 48)
        assert [begun.count(owner) for owner in range(5)] == [40, 5, 1, 1, 1]


async def test_waiting_call_that_is_cancelled_takes_no_slot(held: Held) -> None:
    pool = Pool(1)
    async with busy(held, pool):
        for _ in range(3):
            with anyio.move_on_after(0.01):
                await run_in_thread(lambda: 1, pool=pool)
    assert await run_in_thread(lambda: "free", pool=pool) == "free"


async def test_owner_whose_share_is_abandoned_is_rejected_alone(held: Held) -> None:
    pool = Pool(3, fair=True)
    for _ in range(2):
        held.started = 0
        await leave(held, pool)
    with pytest.raises(ThreadsExhausted, match="in all 2 threads"):
        await run_in_thread(lambda: 1, pool=pool)
    assert await run_in_thread(lambda: 1, pool=pool, owner="another") == 1


async def test_new_lane_takes_another_thread_than_a_slow_one(held: Held) -> None:
    threads, later, others = LegThreads(), list[int](), list[int]()

    async def run_after() -> None:
        later.append(await threads.run(threading.get_ident, lane="slow"))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(threads.run, held, lane="slow"))
            await until(lambda: held.started)
            group.start_soon(run_after)
            others += [await threads.run(threading.get_ident, lane=lane) for lane in ("new", None)]
            assert later == []
            held.release.set()
    assert len({*others}) == 1
    assert later[0] not in others
    assert not threads.share_one
    threads.close()


async def test_lanes_that_wait_for_a_slot_all_run(held: Held) -> None:
    pool, threads, ran = Pool(1), LegThreads(), list[int]()

    async with busy(held, pool) as group:
        for lane in range(3):
            group.start_soon(partial(threads.run, partial(ran.append, lane), lane=lane, pool=pool))
        await anyio.wait_all_tasks_blocked()
        assert ran == []
        held.release.set()
        await until(lambda: len(ran) == 3)
    assert sorted(ran) == [0, 1, 2]
    threads.close()
