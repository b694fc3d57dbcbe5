"""Store of a simulated fleet: one ledger in memory, which instances reach over a network that loses and delays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import TaskListeners
from roundtrip.ledger.tasks import TaskEntry, TaskSummary
from roundtrip.ledger.waiting import Waiting
from roundtrip.machine.table import EntryState
from roundtrip.machine.tasks import TaskState
from roundtrip.system import System
from tests.simulation.loop import Process, SimulatedLoop

__all__ = ["EPOCH", "SharedStore", "SimulatedLedger", "StoreFaults"]

T = TypeVar("T")
Wrote = Callable[[TaskEntry | None, TaskEntry, Process], None]
Kept = Callable[[LedgerEntry | TaskEntry], None]

EPOCH = 1_800_000_000.0
"""The time of day at which simulations begin."""


class StoreFaults:
    """Faults of the network to the store, which stop when the simulation has to come to an end."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.share = chance.choice([0.0, 0.02, 0.1])
        """The share of requests that fail, or whose response is lost."""
        self.silence = chance.choice([0.0, 0.2, 1.0])
        """The share of announcements that are lost."""
        self.slow = chance.choice([0.0, 0.0, 0.05])
        """The share of requests that take seconds."""
        self.is_down = False

    def stop(self) -> None:
        """Make the network a good one."""
        self.share = self.slow = 0.0
        self.silence = 0.0
        self.is_down = False

    def delay(self) -> float:
        """Return the time that a message takes."""
        return self._chance.uniform(1, 15) if self._chance.random() < self.slow else self._chance.uniform(0.0002, 0.02)

    def silences(self) -> bool:
        """Return True if this announcement is lost."""
        return self.is_down or self._chance.random() < self.silence

    def strikes(self) -> bool:
        """Return True if this message is lost."""
        return self.is_down or self._chance.random() < self.share


class _Memory(MemoryLedger):
    """The ledger itself, which other ledgers operate."""

    def entry_of(self, key: str) -> LedgerEntry | None:
        return self._entries.get(key)

    def state_of(self, key: str) -> EntryState | None:
        entry = self.entry_of(key)
        return None if entry is None else entry.state

    async def change(self, key: str, work: Callable[[LedgerEntry, float], T]) -> T:
        return await self._change(key, work)

    def next_epoch(self, now: float) -> int:
        return self._next_epoch(now)


class SharedStore:
    """The one store of a fleet, whose operations are atomic.

    Args:
        loop: The simulation.
        faults: The network to it.
        wrote: Called with a task before and after each write, and the process that wrote it.
        kept: Called with each entry that was written.
    """

    def __init__(self, loop: SimulatedLoop, faults: StoreFaults, wrote: Wrote, kept: Kept) -> None:
        self.loop = loop
        self.faults = faults
        self.process = Process("the store")
        self.wrote = wrote
        self.kept = kept
        self.memory = _Memory(system=System(time=lambda: EPOCH + loop.time(), monotonic=loop.time))
        self._readers: dict[Process, Callable[[str], None]] = {}

    def join(self, process: Process, announced: Callable[[str], None]) -> None:
        """Announce changes to an instance from now on."""
        self._readers[process] = announced

    def announce(self, key: str) -> None:
        """Announce a change to all instances, some of which may not hear of it."""
        for process, announced in self._readers.items():
            if not self.faults.silences():
                self.loop.post(process, self.faults.delay(), announced, key)

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do an operation for the running process, with both ways through the network.

        Raises:
            LedgerDown: The request or the response was lost.
        """
        loop, asker = self.loop, self.loop.process
        answered: asyncio.Future[T] = loop.create_future()

        def answer(result: T | None, error: Exception | None) -> None:
            if answered.done():
                return
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(result)  # type: ignore[arg-type]

        def operate() -> None:
            result, error = None, None
            try:
                result = _at_once(work())
            except LedgerDown as raised:
                error = raised
            if self.faults.strikes():
                error = LedgerDown("the response of the store was lost")
            loop.post(asker, self.faults.delay(), answer, result, error)

        if self.faults.strikes():
            loop.post(asker, self.faults.delay(), answer, None, LedgerDown("the store cannot be reached"))
        else:
            loop.post(self.process, self.faults.delay(), operate)
        return await answered


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run an operation in memory, which waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise RuntimeError("an operation in memory must not wait")


class SimulatedLedger(EntryLedger):
    """Connection of one instance to the store."""

    def __init__(self, store: SharedStore, process: Process) -> None:
        self._store = store
        self._waiting = Waiting()
        self.tasks = SimulatedTasks(store, process)
        store.join(process, self._announced)

    def _announced(self, key: str) -> None:
        self._waiting.wake(key)
        self.tasks.listeners.announce_here(key)

    @property
    def reach(self) -> Reach:
        return Reach.FLEET

    async def aclose(self) -> None:
        pass

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        async def change() -> T:
            before = self._store.memory.state_of(key)
            result = await self._store.memory.change(key, work)
            if entry := self._store.memory.entry_of(key):
                self._store.kept(entry)
            if self._store.memory.state_of(key) is not before:
                self._store.announce(key)
            return result

        return await self._store.ask(change)

    def _next_epoch(self, now: float) -> int:
        return self._store.memory.next_epoch(now)


class SimulatedTasks:
    """Tasks of the store, as one instance reaches them."""

    def __init__(self, store: SharedStore, process: Process) -> None:
        self._store = store
        self._process = process
        self._tasks = store.memory.tasks
        self.listeners = TaskListeners()

    async def add(self, entry: TaskEntry) -> bool:
        sent = entry.copy()

        async def add() -> bool:
            added = await self._tasks.add(sent)
            if added:
                self._store.kept(sent)
                self._store.wrote(None, sent, self._process)
                self._store.announce(sent.call_id)
            return added

        return await self._store.ask(add)

    async def load(self, call_id: str) -> tuple[TaskEntry | None, float]:
        return await self._store.ask(lambda: self._tasks.load(call_id))

    async def save(self, entry: TaskEntry, *, version: int) -> bool:
        sent = entry.copy()

        async def save() -> bool:
            before, _ = await self._tasks.load(sent.call_id)
            saved = await self._tasks.save(sent, version=version)
            if saved:
                self._store.kept(sent)
                self._store.wrote(before, sent, self._process)
                self._store.announce(sent.call_id)
            return saved

        return await self._store.ask(save)

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        return await self._store.ask(lambda: self._tasks.due(limit))

    async def list(self, *, limit: int, states: Sequence[TaskState] = ()) -> list[TaskSummary]:
        return await self._store.ask(lambda: self._tasks.list(limit=limit, states=states))

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[TaskSummary]:
        return await self._store.ask(lambda: self._tasks.labelled(label, limit=limit, after=after))

    async def scan(self, *, after: str, limit: int) -> Sequence[TaskEntry]:
        return await self._store.ask(lambda: self._tasks.scan(after=after, limit=limit))

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        return self.listeners.listen(changed)
