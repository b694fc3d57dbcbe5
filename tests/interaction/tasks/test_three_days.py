"""Tasks that wait for days hold no worker, no thread and no connection, on every store."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roundtrip import Context, Server
from roundtrip.ledger.machines import StoredState
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.kit.peer import Peer, peers, text_of
from tests.kit.stores import KINDS, AnyLedger, Servers, clock_ledger
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]
DAYS = timedelta(days=3)
HOW = ("sleep", "signal", "answer")
TASKS = 24
POOLS = TASKS // 4
"""By how much pools may grow, as legs happen to run at the same time. Waiting tasks would hold more, if any."""


class Held(NamedTuple):
    """Counts of everything that a waiting task could hold."""

    asyncio_tasks: int
    threads: int
    connections: int


def shop(ledger: AnyLedger, clock: Clock) -> Server[Any]:
    server = Server[Any]("shop", keys=[b"k" * 32], ledger=ledger, system=System(time=clock))

    @server.tool(task="required")
    async def wait(how: str, ctx: Context) -> str:
        await ctx.step("before", lambda: how)
        if how == "sleep":
            await ctx.sleep(DAYS)
        elif how == "signal":
            try:
                return f"paid {await ctx.wait_for('payment', timeout=DAYS)}"
            except TimeoutError:
                pass
        else:
            await ctx.ask("word", "Which word?", str)
        return f"{how} is over"

    return server


def connections_of(kind: str, started: Servers) -> Callable[[], int]:
    """Return a function that asks a store for the number of its connections, which are all of the server."""
    match kind:
        case "redis":
            # One is that of the question.
            return lambda: len(started.redis.command("client", "list").splitlines()) - 1
        case "postgres":
            statement = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return lambda: int(started.postgres.command(statement))
        case _:
            return lambda: 0


async def begin(peer: Peer, ledger: AnyLedger) -> list[tuple[str, str]]:
    """Make tasks, and return their ids with what they wait for, when all of them wait."""
    tasks = [((await peer.call("wait", how=HOW[number % 3]))["taskId"], HOW[number % 3]) for number in range(TASKS)]
    states = (StoredState.WAITING, StoredState.ASKING)

    async def all_wait() -> bool:
        return len(await ledger.tasks.list(limit=2 * TASKS, states=states)) == TASKS

    await until(all_wait)
    return tasks


async def end(peer: Peer, tasks: list[tuple[str, str]], clock: Clock) -> None:
    """Turn the clock, and check that all tasks end."""
    clock.advance(DAYS.total_seconds() - 10)
    for task, how in tasks:
        assert (await peer.get(task))["status"] == ("input_required" if how == "answer" else "working")
    clock.advance(11)
    for task, how in tasks:
        if how == "answer":
            await peer.answer(task, word="Dear")
        assert text_of(await peer.until(task, "completed")) == f"{how} is over"


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_for_days_holds_nothing(kind: str, started: Servers, tmp_path: Path) -> None:
    clock = Clock()
    # Redis tells microseconds, so times of the test have no more digits.
    clock.now = float(int(clock.now))
    connections = connections_of(kind, started)

    def held() -> Held:
        return Held(len(asyncio.all_tasks()), threading.active_count(), connections())

    async with clock_ledger(kind, started, tmp_path, clock) as ledger, peers(shop(ledger, clock)) as (peer,):
        # The first tasks fill the pools of threads and connections, which stay open.
        await end(peer, await begin(peer, ledger), clock)
        before = held()
        waiting = await begin(peer, ledger)
        await until(lambda: all(now <= then + POOLS for now, then in zip(held(), before, strict=True)))
        await end(peer, waiting, clock)
