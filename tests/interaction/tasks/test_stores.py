"""One contract for all stores of tasks, and the trace, check and views of a task."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.ledger import LedgerDown, MemoryLedger
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import MAX_TRIES, CallEntry, CallStore, HasCallStore, SeenEntry, change_task
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.kit.peer import WAIT_SECONDS
from tests.kit.stores import KINDS, Servers, clock_ledger

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, started: Servers, tmp_path: Path, clock: Clock
) -> AsyncGenerator[CallStore]:
    async with clock_ledger(request.param, started, tmp_path, clock) as ledger:
        assert isinstance(ledger, HasCallStore)
        yield ledger.tasks


in_memory = pytest.mark.parametrize("store", ["memory"], indirect=True)
"""What an entry decides is the same in each store."""


def entry_of(clock: Clock, call_id: str = "a", **fields: Any) -> CallEntry:
    now = clock()
    given: dict[str, Any] = {"created": now, "expires": now + 1000, "due": now, "updated": now, **fields}
    return CallEntry(call_id, "ship", **given)


async def claimed(store: CallStore, holder: str, *, lease: float = 30) -> CallEntry | None:
    return await change_task(
        store, "a", lambda entry, now: replace(entry) if entry.claim(holder, now, lease=lease) else None
    )


async def loaded(store: CallStore, call_id: str = "a") -> CallEntry:
    entry, _ = await store.load(call_id)
    assert entry is not None
    return entry


async def test_loaded_task_is_a_copy_with_all_fields(store: CallStore, clock: Clock) -> None:
    full = entry_of(
        clock, holder="h", epoch=3, runs_once=True, has_begun=True, tries=2, deaths=4, content="c", version=0
    )
    await store.add(full)
    full.version, full.notes = 1, ["one", "two"]
    assert await store.save(full, version=0)
    first = await loaded(store)
    assert first == full
    first.notes.append("mine")
    assert (await loaded(store)).notes == ["one", "two"]
    again = await loaded(store)
    again.version, again.notes = 2, []
    assert await store.save(again, version=1)
    assert (await loaded(store)).notes == []


async def test_notes_are_appended_replaced_and_dropped(store: CallStore, clock: Clock) -> None:
    await store.add(entry_of(clock, notes=["one"]))
    seen = SeenEntry(*await _read(store), clock)
    for number in ("two", "three"):
        await change_task(store, "a", lambda entry, now, number=number: entry.notes.append(number), seen=seen)
    assert (await loaded(store)).notes == ["one", "two", "three"]

    def rewrite(entry: CallEntry, now: float) -> None:
        entry.notes, entry.stored_notes = [note.upper() for note in entry.notes], None

    await change_task(store, "a", rewrite)
    assert (await loaded(store)).notes == ["ONE", "TWO", "THREE"]
    # What it has seen is old now, so it reads again.
    await change_task(store, "a", lambda entry, now: entry.notes.append("four"), seen=seen)
    await change_task(store, "a", lambda entry, now: entry.notes.clear(), seen=seen)
    await change_task(store, "a", lambda entry, now: entry.notes.append("five"), seen=seen)
    assert (await loaded(store)).notes == ["five"]


async def _read(store: CallStore) -> tuple[CallEntry, float]:
    entry, now = await store.load("a")
    assert entry is not None
    return entry, now


async def test_only_one_worker_gets_the_lease(store: CallStore, clock: Clock) -> None:
    await store.add(entry_of(clock))
    results: list[CallEntry | None] = []

    async def claim(holder: str) -> None:
        results.append(await claimed(store, holder))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(claim, str(number))
    assert len([entry for entry in results if entry is not None]) == 1


@in_memory
async def test_worker_whose_lease_has_ended_cannot_write(store: CallStore, clock: Clock) -> None:
    await store.add(entry_of(clock))
    first = await claimed(store, "one")
    assert first is not None
    assert await claimed(store, "two") is None
    clock.advance(31)
    second = await claimed(store, "two")
    assert second is not None
    assert second.epoch == first.epoch + 1
    current = await loaded(store)
    assert not current.is_held("one", first.epoch)
    # A worker of the same name that was restarted has another epoch.
    assert not current.is_held("two", first.epoch)
    assert current.is_held("two", second.epoch)


@in_memory
async def test_body_that_runs_once_is_lost_with_its_worker(store: CallStore, clock: Clock) -> None:
    expected = {"again": StoredState.DUE, "once": StoredState.DUE, "once, begun": StoredState.LOST}

    def begin(entry: CallEntry, now: float) -> None:
        entry.claim("one", now, lease=30)
        entry.has_begun = entry.call_id != "once"

    for call_id in expected:
        await store.add(entry_of(clock, call_id, runs_once=call_id != "again"))
        await change_task(store, call_id, begin)
    clock.advance(31)
    for call_id in expected:
        await change_task(store, call_id, lambda entry, now: None)
    assert {call_id: (await loaded(store, call_id)).state for call_id in expected} == expected


@in_memory
async def test_retried_task_is_lost_again_only_if_its_body_has_begun_again(store: CallStore, clock: Clock) -> None:
    await store.add(entry_of(clock, runs_once=True))

    def lose(entry: CallEntry, now: float) -> None:
        entry.claim("one", now, lease=30)
        entry.has_begun = True
        entry.give_up(now)

    await change_task(store, "a", lose)
    assert (await loaded(store)).state is StoredState.LOST
    await change_task(store, "a", lambda entry, now: entry.retry(now))
    assert await claimed(store, "two") is not None
    clock.advance(31)
    assert await claimed(store, "three") is not None


@in_memory
async def test_task_that_ends_its_workers_is_given_up_if_it_stores_no_step(store: CallStore, clock: Clock) -> None:
    await store.add(entry_of(clock))
    for number in range(2 * MAX_TRIES):
        assert await claimed(store, str(number)) is not None
        if number % 2:
            await change_task(store, "a", lambda entry, now: entry.note("step", now, lease=30))
            clock.advance(31)
        else:
            await change_task(store, "a", lambda entry, now: entry.give_up(now))
    for number in range(MAX_TRIES - 1):
        assert await claimed(store, str(number)) is not None
        clock.advance(31)
    assert await claimed(store, "last") is None
    assert ((await loaded(store)).state, (await loaded(store)).deaths) == (StoredState.LOST, 2 * MAX_TRIES - 1)


@pytest.mark.parametrize(
    ("size", "account", "said"),
    [(10_000, None, "full, with 1 tasks"), (20_000, "one", "the rest is reserved for other callers")],
)
async def test_full_memory_takes_no_new_tasks(clock: Clock, size: int, account: str | None, said: str) -> None:
    store = MemoryLedger(max_bytes=size, system=System(time=clock)).tasks
    await store.add(entry_of(clock, content="x" * 10_000, account=account))
    with pytest.raises(LedgerDown, match=said):
        await store.add(entry_of(clock, "b", account=account))
    assert account is None or await store.add(entry_of(clock, "c", account="other"))
    clock.advance(1001)
    await change_task(store, "a", lambda entry, now: None)
    assert await store.add(entry_of(clock, "b", account=account))


async def test_due_tasks_come_in_order_and_tell_the_next_time(store: CallStore, clock: Clock) -> None:
    now = clock()
    for call_id, after in (("b", 20), ("a", 10), ("c", 30)):
        await store.add(entry_of(clock, call_id, due=now + after))
    assert await store.due(5) == ([], pytest.approx(10))
    clock.advance(25)
    assert await store.due(5) == (["a", "b"], None)
    assert await store.due(1) == (["a"], None)
    # They stay due until they change.
    assert (await store.due(5))[0] == ["a", "b"]
    await claimed(store, "one")
    assert (await store.due(5))[0] == ["b"]


async def test_listeners_hear_of_each_change(store: CallStore, clock: Clock) -> None:
    heard: list[str | None] = []
    arrived = anyio.Event()

    def changed(call_id: str | None) -> None:
        heard.append(call_id)
        arrived.set()

    await store.add(entry_of(clock, "before"))
    stop = store.listen(changed)
    with anyio.fail_after(WAIT_SECONDS):
        number = 0
        while "a" not in heard:
            # A listener may begin to listen a moment later.
            number += 1
            await store.add(entry_of(clock, "a")) if number == 1 else await claimed(store, str(number))
            clock.advance(31)
            await anyio.sleep(0.02)
    stop()
    heard.clear()
    await store.add(entry_of(clock, "later"))
    # A second time, as a server may that ends.
    stop()
    assert heard == []


async def test_list_shows_the_newest_first_and_no_content(store: CallStore, clock: Clock) -> None:
    for call_id in ("a", "b", "c"):
        await store.add(entry_of(clock, call_id, content="secret"))
        clock.advance(1)
    await claimed(store, "one")
    found = await store.list(limit=2)
    assert [one.call_id for one in found] == ["a", "c"]
    entry = await loaded(store, "a")
    assert (found[0].state, found[0].expires) == (StoredState.RUNNING, entry.expires)
    assert "secret" not in repr(found)
    assert [one.call_id for one in await store.list(limit=5, states=[StoredState.RUNNING])] == ["a"]


async def test_tasks_are_found_by_their_labels_until_they_end(store: CallStore, clock: Clock) -> None:
    for call_id in ("b", "c", "a", "d"):
        await store.add(entry_of(clock, call_id, labels=("even", "red") if call_id in "bd" else ("odd", "red")))
        clock.advance(1 if call_id != "c" else 0)
    red = await store.labelled("red", limit=3)
    assert [one.call_id for one in red] == ["b", "a", "c"]
    following = await store.labelled("red", limit=3, after=(red[1].created, red[1].call_id))
    assert [one.call_id for one in following] == ["c", "d"]
    assert [one.call_id for one in await store.labelled("even", limit=3)] == ["b", "d"]
    assert not await store.labelled("blue", limit=3)

    def relabel(entry: CallEntry, now: float) -> None:
        entry.labels = ("blue", "red")

    await change_task(store, "d", relabel)
    assert [one.call_id for one in await store.labelled("even", limit=3)] == ["b"]
    assert [one.call_id for one in await store.labelled("blue", limit=3)] == ["d"]
    await change_task(store, "b", lambda entry, now: entry.apply(StoredEvent.CANCEL, now))
    assert not await store.labelled("even", limit=3)
    clock.advance(2000)
    for call_id in "abcd":
        await change_task(store, call_id, lambda entry, now: None)
    assert not await store.labelled("red", limit=3)


async def test_all_tasks_can_be_scanned_in_pages(store: CallStore, clock: Clock) -> None:
    for call_id in ("b", "d", "a", "c"):
        await store.add(entry_of(clock, call_id, content=f"content of {call_id}", notes=["one", call_id]))
    first = await store.scan(after="", limit=3)
    assert [entry.call_id for entry in first] == ["a", "b", "c"]
    assert first[1] == await loaded(store, "b")
    assert first[1].notes == ["one", "b"]
    assert [entry.call_id for entry in await store.scan(after="c", limit=3)] == ["d"]
