"""The contract of ledgers, the same for all."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.ledger import (
    ClaimAnswer,
    ClaimStatus,
    Ledger,
    LedgerDown,
    MemoryLedger,
    Reach,
    RedisLedger,
    SqliteLedger,
    lease,
    waiting,
)
from roundtrip.ledger.lease import bury
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.interaction.ledger.holders import LONG, EpochKeeper, claim
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SHORT = 0.05


async def test_second_claimer_learns_of_the_running_holder(ledger: EpochKeeper) -> None:
    await claim(ledger, answers_digest="a")
    assert await ledger.renew("call", holder="one", lease=3 * LONG)
    answer = await claim(ledger, answers_digest="b", holder="two")
    assert answer == ClaimAnswer(ClaimStatus.RUNNING, "a")
    # Waiting legs look again when it ends.
    assert 2 * LONG < answer.lease < 3 * LONG + 1
    # A holder claims again if the reply to its claim was lost.
    assert await claim(ledger, answers_digest="a") == ClaimAnswer(ClaimStatus.GRANTED, "a")


async def test_holder_that_dies_before_it_begins_has_a_successor(ledger: EpochKeeper) -> None:
    await claim(ledger, tentative=True)
    assert await ledger.note("call", "step", "1", holder="one")
    assert await ledger.renew("call", holder="one", lease=SHORT)
    assert await ledger.wait("call", patience=LONG) is None
    second = await claim(ledger, answers_digest="b", holder="two")
    assert second == ClaimAnswer(ClaimStatus.GRANTED, "b", notes={"step": "1"})
    # It has lost its claim, and may not begin.
    assert await claim(ledger) == ClaimAnswer(ClaimStatus.RUNNING, "b")
    assert not await ledger.renew("call", holder="one", lease=LONG)
    assert not await ledger.settle("call", holder="one", result="1", keep=LONG)
    await ledger.release("call", holder="one")
    assert (await claim(ledger, holder="three")).status is ClaimStatus.RUNNING


async def test_holder_that_dies_after_it_has_begun_is_unknown(ledger: EpochKeeper) -> None:
    unknown = ClaimAnswer(ClaimStatus.UNKNOWN, "a")
    await claim(ledger, tentative=True)
    await claim(ledger)
    # A claim that was sent again on another connection may overtake the first, slow one, and undoes nothing.
    assert (await claim(ledger, tentative=True, lease=SHORT)).status is ClaimStatus.GRANTED
    assert await ledger.wait("call", patience=LONG) == unknown
    assert [await claim(ledger, holder=holder, tentative=True) for holder in ("one", "two")] == [unknown] * 2
    # It stays the holder while it has no successor.
    assert await ledger.note("call", "price", "1", holder="one")
    assert await ledger.renew("call", holder="one", lease=LONG)
    await anyio.sleep(SHORT * 2)
    assert await ledger.wait("call", patience=0) == ClaimAnswer(ClaimStatus.RUNNING, "a")
    assert await ledger.renew("call", holder="one", lease=SHORT)
    assert await ledger.wait("call", patience=LONG) == unknown
    # Its own claim has still begun, and that of a successor has not.
    for holder, left in (("one", unknown), ("two", None)):
        again = await claim(ledger, holder=holder, rerun=True, tentative=True, lease=SHORT)
        assert (again.status, again.notes) == (ClaimStatus.GRANTED, {"price": "1"})
        assert await ledger.wait("call", patience=LONG) == left


async def test_memory_does_not_fill_up_with_what_was_taken_back() -> None:
    memory = MemoryLedger()
    ledger = EpochKeeper(memory)
    for _ in range(5000):
        await claim(ledger, tentative=True)
        await claim(ledger)
        await ledger.release("call", holder="one")
    assert len(memory._expiries) < 2000  # pyright: ignore[reportPrivateUsage]


async def test_durable_sqlite_ledger_flushes_every_write(tmp_path: Path) -> None:
    pragmas: list[Any] = []
    for durable in (True, False):
        ledger = SqliteLedger(tmp_path / "ledger.db", durable=durable)
        for name in ("synchronous", "journal_mode"):
            pragmas += await ledger._run(lambda db, name=name: db.execute(f"PRAGMA {name}").fetchone())  # pyright: ignore[reportPrivateUsage]
        await ledger.aclose()
    assert pragmas == [2, "wal", 1, "wal"]


async def test_epochs_grow_while_the_clock_stands_still(tmp_path: Path) -> None:
    still = System(time=lambda: 1000.0, monotonic=lambda: 1000.0)
    for ledger in (EpochKeeper(MemoryLedger(system=still)), EpochKeeper(SqliteLedger(tmp_path / "l.db", system=still))):
        epochs: list[int] = []
        for _ in range(3):
            epochs.append((await claim(ledger)).epoch)
            await ledger.release("call", holder="one", epoch=epochs[-1])
        assert epochs == sorted(set(epochs))
        await ledger.aclose()


async def test_sqlite_file_drops_expired_entries_and_notes(tmp_path: Path) -> None:
    clock = Clock()
    ledger = EpochKeeper(SqliteLedger(tmp_path / "ledger.db", durable=False, system=System(time=clock)))
    for key in ("kept", "expired"):
        await claim(ledger, key, keep=LONG if key == "kept" else 1)
        assert await ledger.note(key, "price", "1", holder="one")
    clock.advance(2)
    for number in range(300):
        await claim(ledger, str(number), keep=0)
        await ledger.count(f"guesses-{number}", "a", most=1, keep=0)
    await ledger.aclose()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as file:
        entries = [key for (key,) in file.execute("SELECT key FROM entries")]
        notes = [key for (key,) in file.execute("SELECT key FROM notes")]
    assert "kept" in entries
    assert "kept" in notes
    assert "expired" not in {*entries, *notes}
    assert max(len(entries), len(notes)) < 100


async def test_notes_reach_the_next_claimer(ledger: EpochKeeper) -> None:
    await claim(ledger)
    assert await ledger.note("call", "price", '"12"', holder="one")
    assert await ledger.note("call", "other", '"é"', holder="one")
    assert await ledger.note("call", "price", '"13"', holder="one")
    await ledger.release("call", holder="one")
    assert await ledger.wait("call", patience=0) is None
    granted = await claim(ledger, answers_digest="b", holder="two")
    assert granted == ClaimAnswer(ClaimStatus.GRANTED, "b", notes={"price": '"13"', "other": '"é"'})
    assert await claim(ledger, "another") == ClaimAnswer(ClaimStatus.GRANTED, "a")
    await ledger.settle("call", holder="two", result="r", keep=LONG)
    assert await claim(ledger, holder="three") == ClaimAnswer(ClaimStatus.SETTLED, "b", "r")


async def test_settled_entry_stays_settled(ledger: EpochKeeper) -> None:
    settled = ClaimAnswer(ClaimStatus.SETTLED, "a", '{"é": 1}')
    await claim(ledger, lease=SHORT)
    for _ in range(2):
        assert await ledger.settle("call", holder="one", result='{"é": 1}', keep=LONG)
    await ledger.release("call", holder="one")
    assert not await ledger.settle("call", holder="one", result="second", keep=LONG)
    assert not await ledger.settle("call", holder="one", result=None, keep=LONG)
    assert not await ledger.settle("call", holder="two", result='{"é": 1}', keep=LONG)
    assert not await ledger.renew("call", holder="one", lease=LONG)
    # It outlasts the lease of its holder.
    await anyio.sleep(SHORT * 2)
    for holder, rerun in (("one", False), ("two", False), ("two", True)):
        assert await claim(ledger, holder=holder, rerun=rerun) == settled
    assert await ledger.wait("call", patience=0) == settled


async def test_texts_that_mean_something_to_redis_are_texts(ledger: EpochKeeper) -> None:
    texts = ["}", "{a}/{b}", "a b\r\n$1\r\n", "\0", "é\u2028", "", "*"]
    told = {text: await _keep(ledger, f"call-{text}-end", text) for text in texts}
    assert told == {
        text: (
            [ClaimStatus.GRANTED, ClaimStatus.GRANTED, True, {text: text}, True],
            ClaimAnswer(ClaimStatus.SETTLED, text, text),
        )
        for text in texts
    }


async def _keep(ledger: EpochKeeper, key: str, text: str) -> tuple[list[Any], ClaimAnswer]:
    """Use a text as every part of an entry, and return what the ledger said."""
    said: list[Any] = [
        (await claim(ledger, key, answers_digest=text, holder=text)).status,
        (await claim(ledger, f"{key}}}", holder="other")).status,
        await ledger.note(key, text, text, holder=text),
        (await claim(ledger, key, answers_digest=text, holder=text)).notes,
        await ledger.settle(key, holder=text, result=text, keep=LONG),
    ]
    return said, await claim(ledger, key, holder="two")


async def test_expired_entry_is_forgotten(ledger: EpochKeeper) -> None:
    await claim(ledger, keep=SHORT)
    await claim(ledger, "claimed again", keep=SHORT)
    await claim(ledger, "claimed again")
    await claim(ledger, "settled")
    await ledger.settle("settled", holder="one", result="r", keep=SHORT)
    await anyio.sleep(SHORT * 2)
    assert await ledger.wait("call", patience=0) is None
    assert await ledger.wait("settled", patience=0) is None
    assert (await claim(ledger, holder="two")).status is ClaimStatus.GRANTED
    assert (await claim(ledger, "settled", holder="two")).status is ClaimStatus.GRANTED
    for key in ("settled", "claimed again"):
        assert await claim(ledger, key, holder="three") == ClaimAnswer(ClaimStatus.RUNNING, "a")


async def test_wait_cancelled_at_any_moment_leaves_no_task(ledger: EpochKeeper) -> None:
    """On Python 3.11, `asyncio.wait_for` swallows a cancellation that comes as its task ends."""

    async def wait() -> None:
        await ledger.wait("call", patience=LONG)

    await claim(ledger)
    before = asyncio.all_tasks()
    for steps in range(50):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            for _ in range(steps):
                await asyncio.sleep(0)
            group.cancel_scope.cancel()
        if left := asyncio.all_tasks() - before:
            assert (await asyncio.wait(left, timeout=WAIT))[1] == set()


async def test_of_many_who_begin_at_once_one_may(ledger: EpochKeeper) -> None:
    for number in range(20):
        seen: list[ClaimStatus] = []

        async def begin(holder: str, key: str = str(number), seen: list[ClaimStatus] = seen) -> None:
            seen.append((await claim(ledger, key, holder=holder)).status)

        async with anyio.create_task_group() as group:
            for who in range(10):
                group.start_soon(begin, str(who))
        assert sorted(standing.value for standing in seen) == ["granted"] + ["running"] * 9


async def test_ledger_reopens_on_demand(ledger: EpochKeeper) -> None:
    await claim(ledger)
    await ledger.aclose()
    assert (await claim(ledger, holder="two")).status is ClaimStatus.RUNNING


async def test_a_ledger_says_how_far_it_reaches(ledger: EpochKeeper) -> None:
    reaches: dict[type[Ledger], Reach] = {MemoryLedger: Reach.PROCESS, SqliteLedger: Reach.MACHINE}
    assert ledger.ledger.reach is reaches.get(type(ledger.ledger), Reach.FLEET)
    assert Reach.PROCESS < Reach.MACHINE < Reach.FLEET


class Counted:
    """Counter of looks at an entry."""

    def __init__(self, *seen: ClaimAnswer | LedgerDown | None) -> None:
        self.looks = self.announced = 0
        self.waiting = Waiting()
        self.seen: list[ClaimAnswer | LedgerDown | None] = [*seen]

    async def __call__(self) -> ClaimAnswer | None:
        self.looks += 1
        # Each look is followed by an announcement.
        asyncio.get_running_loop().call_later(0.005, self._announce)
        seen = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        if isinstance(seen, LedgerDown):
            raise seen
        return seen

    def _announce(self) -> None:
        self.announced += 1
        self.waiting.wake("call")


RUNNING = ClaimAnswer(ClaimStatus.RUNNING, "a")
SETTLED = ClaimAnswer(ClaimStatus.SETTLED, "a", "r")


async def all_waiting(look: Counted, many: int, *, patience: float = LONG) -> list[ClaimAnswer | LedgerDown | None]:
    waiting = look.waiting
    told: list[ClaimAnswer | LedgerDown | None] = []

    async def wait() -> None:
        try:
            told.append(await waiting.wait("call", look, patience=patience))
        except LedgerDown as error:
            told.append(error)

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            for _ in range(many):
                group.start_soon(wait)
    return told


async def test_of_many_who_wait_for_an_entry_one_looks() -> None:
    look = Counted(RUNNING, RUNNING, RUNNING, SETTLED)
    assert await all_waiting(look, 60) == [SETTLED] * 60
    assert look.looks == 4


async def test_more_than_a_bounded_number_do_not_wait() -> None:
    look = Counted(RUNNING, RUNNING, SETTLED)
    told = await all_waiting(look, 500)
    assert (told.count(SETTLED), told.count(RUNNING)) == (64, 436)


async def test_failing_ledger_is_reported_to_all_waiters() -> None:
    look = Counted(RUNNING, LedgerDown("gone"))
    told = await all_waiting(look, 50)
    assert ([str(one) for one in told], look.looks) == (["gone"] * 50, 2)


async def test_freed_entry_is_offered_to_one_waiter_after_another() -> None:
    look = Counted(RUNNING, None)
    assert await all_waiting(look, 30) == [None] * 30
    assert look.looks == 31


async def test_another_looks_when_the_one_who_looks_leaves() -> None:
    look = Counted(RUNNING)
    told: list[ClaimAnswer | None] = []

    async def wait(scope: anyio.CancelScope) -> None:
        with scope:
            told.append(await look.waiting.wait("call", look, patience=LONG))

    scopes = [anyio.CancelScope() for _ in range(3)]
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            for scope in scopes:
                group.start_soon(wait, scope)
            await anyio.wait_all_tasks_blocked()
            scopes[0].cancel()
            await anyio.wait_all_tasks_blocked()
            look.seen = [SETTLED]
    assert told == [SETTLED] * 2


async def test_different_items_are_counted_up_to_a_number(ledger: EpochKeeper) -> None:
    counted = [await ledger.count("call/guesses", item, most=3, keep=LONG) for item in ("a", "b", "a", "c", "d", "c")]
    assert counted == [True, True, True, True, False, True]
    assert await ledger.count("call/other", "d", most=3, keep=LONG)
    assert not await ledger.count("call/guesses", "d", most=3, keep=LONG)
    assert (await claim(ledger)).status is ClaimStatus.GRANTED


async def test_concurrent_counters_never_exceed_the_limit(ledger: EpochKeeper) -> None:
    counted: list[bool] = []

    async def count(item: str) -> None:
        counted.append(await ledger.count("call/guesses", item, most=5, keep=LONG))

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(count, str(number))
    assert counted.count(True) == 5


async def test_counted_guess_expires(ledger: EpochKeeper) -> None:
    assert await ledger.count("call/guesses", "a", most=1, keep=SHORT)
    with anyio.fail_after(WAIT):
        while not await ledger.count("call/guesses", "b", most=1, keep=LONG):  # noqa: ASYNC110 - no event
            await anyio.sleep(SHORT)


async def test_memory_counts_what_it_counts_as_held() -> None:
    ledger = MemoryLedger(max_bytes=8 * 1024)
    for number in range(8):
        assert await ledger.count(str(number), "a", most=1, keep=LONG)
    with pytest.raises(LedgerDown):
        await ledger.count("one more", "a", most=1, keep=LONG)
    assert await ledger.count("0", "a", most=1, keep=LONG)
    assert not await ledger.count("0", "b", most=1, keep=LONG)


async def test_a_late_writer_cannot_pass_its_successor(ledger: EpochKeeper) -> None:
    """The same holder's name is not enough: the epoch of its own claim counts."""
    first = await claim(ledger, lease=SHORT)
    await anyio.sleep(SHORT * 2)
    second = await claim(ledger, lease=LONG, rerun=True)
    assert second.epoch > first.epoch
    assert not await ledger.note("call", "step", "1", holder="one", epoch=first.epoch)
    assert not await ledger.renew("call", holder="one", epoch=first.epoch, lease=LONG)
    assert not await ledger.settle("call", holder="one", epoch=first.epoch, result="late", keep=LONG)
    assert not await ledger.settle("call", holder="one", epoch=first.epoch, result=None, keep=LONG)
    await ledger.release("call", holder="one", epoch=first.epoch)
    assert await ledger.wait("call", patience=0) == ClaimAnswer(ClaimStatus.RUNNING, "a")
    assert await ledger.settle("call", holder="one", epoch=second.epoch, result="r", keep=LONG)
    assert not await ledger.settle("call", holder="one", epoch=first.epoch, result="r", keep=LONG)


async def test_a_result_of_another_instance_is_announced(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ledger: EpochKeeper, tmp_path: Path
) -> None:
    """A leg that misses an announcement waits for longer than the test."""
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", LONG)
    inner = ledger.ledger
    other = ledger
    if isinstance(inner, SqliteLedger):
        other = EpochKeeper(SqliteLedger(tmp_path / "ledger.db"))
    elif isinstance(inner, RedisLedger):
        in_cluster = "cluster" in request.node.name
        url = request.getfixturevalue("cluster") if in_cluster else request.getfixturevalue("redis").url
        other = EpochKeeper(RedisLedger(url, prefix=request.node.name, cluster=in_cluster))
    for number in range(3):
        key = f"call-{number}"
        await claim(other, key)
        seen: list[ClaimAnswer | None] = []

        async def wait(key: str = key, seen: list[ClaimAnswer | None] = seen) -> None:
            seen.append(await ledger.wait(key, patience=LONG))

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                # Some are announced before the first look, and some long after it.
                await anyio.sleep(SHORT * number)
                await other.settle(key, holder="one", result="r", keep=LONG)
        assert seen == [ClaimAnswer(ClaimStatus.SETTLED, "a", "r")]
    await other.aclose()


async def test_a_leg_on_another_event_loop_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", LONG)
    ledger = EpochKeeper(MemoryLedger())
    await claim(ledger)

    def wait_elsewhere() -> ClaimAnswer | None:
        return asyncio.run(ledger.wait("call", patience=LONG))

    seen: list[ClaimAnswer | None] = []

    async def wait() -> None:
        seen.append(await anyio.to_thread.run_sync(wait_elsewhere))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(SHORT)
            await ledger.settle("call", holder="one", result="r", keep=LONG)
    assert seen == [ClaimAnswer(ClaimStatus.SETTLED, "a", "r")]


async def test_claims_of_a_dead_process_end_at_once(ledger: EpochKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_buried", {})
    for key, holder in (("held", "a5.one"), ("running", "a5.one"), ("again", "a5.one"), ("alive", "a5b.one")):
        assert (await claim(ledger, key, holder=holder, tentative=key == "held")).status is ClaimStatus.GRANTED
    bury("a5")
    assert (await claim(ledger, "held", holder="two", tentative=True)).status is ClaimStatus.GRANTED
    assert (await ledger.wait("running", patience=LONG)).status is ClaimStatus.UNKNOWN
    assert (await claim(ledger, "running", holder="two")).status is ClaimStatus.UNKNOWN
    assert (await claim(ledger, "again", holder="two", rerun=True)).status is ClaimStatus.GRANTED
    assert (await claim(ledger, "alive", holder="two", rerun=True)).status is ClaimStatus.RUNNING
