"""Store of a simulated fleet: one ledger in memory, which instances reach over a network that loses and delays."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import ChangeListeners
from roundtrip.ledger.machines import EntryState, StoredState
from roundtrip.ledger.tasks import CallEntry, EntrySummary
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import System
from tests.simulation.loop import Process, SimulatedLoop, at_once

__all__ = ["EPOCH", "WHOSE", "SharedStore", "SimulatedLedger", "StoreFaults"]

T = TypeVar("T")

Wrote = Callable[[CallEntry | None, CallEntry, Process], None]
Kept = Callable[[LedgerEntry | CallEntry], None]

_HELD = (EntryState.HELD, EntryState.RUNNING, StoredState.RUNNING)
"""The states in which a process has the lease of an entry."""
_SLOW_SECONDS = 1.0
"""Time from which on a message counts as late."""
EPOCH = 1_800_000_000.0
"""The time of day at which simulations begin."""
WHOSE: ContextVar[str] = ContextVar("whose", default="")
"""The name of the intent whose request is being served."""


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
        self._holders: dict[tuple[str, type], tuple[int, Process]] = {}
        """The processes with the leases of calls and tasks, and their epochs."""
        self.troubled: set[str] = set()
        """The calls that had trouble: with the process that had their lease, or with the store."""
        self.keys: dict[str, set[str]] = defaultdict(set[str])
        """The keys that requests with an intent have used."""
        self.log: dict[str, list[str]] = defaultdict(list[str])
        """What happened for each intent: runs of bodies and steps, and `noted` for each step that the store has."""

    def join(self, process: Process, announced: Callable[[str], None]) -> None:
        """Announce changes to an instance from now on."""
        self._readers[process] = announced

    def announce(self, key: str) -> None:
        """Announce a change to all instances, some of which may not hear of it."""
        for process, announced in self._readers.items():
            if not self.faults.silences():
                self.loop.post(process, self.faults.delay(), announced, key)

    def note_holder(self, call_id: str, entry: LedgerEntry | CallEntry, process: Process) -> None:
        """Note the process with the lease of a call, after that process or another one has changed the entry."""
        place = call_id, type(entry)
        if entry.state not in _HELD:
            self._holders.pop(place, None)
        elif place not in self._holders or self._holders[place][0] != entry.epoch:
            self._holders[place] = entry.epoch, process
            if not process.is_alive or process.is_paused or process.is_leaving:
                self.troubled.add(call_id)

    def trouble(self, process: Process) -> None:
        """Note trouble of a process, and so of the calls whose leases it has."""
        self.troubled.update(call_id for (call_id, _), (_, holder) in self._holders.items() if holder is process)

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]], call_id: str = "") -> T:
        """Do an operation for the running process, with both ways through the network.

        Args:
            work: The operation.
            call_id: The call that has trouble if a message is lost or late.

        Raises:
            LedgerDown: The request or the response was lost.
        """
        loop, asker = self.loop, self.loop.process
        self.keys[WHOSE.get()].add(call_id)
        answered: asyncio.Future[T] = loop.create_future()

        def strikes() -> bool:
            is_lost = self.faults.strikes()
            if is_lost:
                self.troubled.add(call_id)
            return is_lost

        def delay() -> float:
            seconds = self.faults.delay()
            if seconds >= _SLOW_SECONDS:
                self.troubled.add(call_id)
            return seconds

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
                result = at_once(work())
            except LedgerDown as raised:
                error = raised
            if strikes():
                error = LedgerDown("the response of the store was lost")
            loop.post(asker, delay(), answer, result, error)

        if strikes():
            loop.post(asker, delay(), answer, None, LedgerDown("the store cannot be reached"))
        else:
            loop.post(self.process, delay(), operate)
        return await answered


class SimulatedLedger(EntryLedger):
    """Connection of one instance to the store."""

    def __init__(self, store: SharedStore, process: Process) -> None:
        self._store = store
        self._process = process
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
        whose = WHOSE.get()

        async def change() -> T:
            before = self._store.memory.state_of(key)
            result = await self._store.memory.change(key, work)
            if work.__name__ == "note" and result:
                self._store.log[whose].append("noted")
            entry = self._store.memory.entry_of(key) or LedgerEntry()
            self._store.kept(entry)
            self._store.note_holder(key, entry, self._process)
            if self._store.memory.state_of(key) is not before:
                self._store.announce(key)
            return result

        return await self._store.ask(change, key)

    def _next_epoch(self, now: float) -> int:
        return self._store.memory.next_epoch(now)


class SimulatedTasks:
    """Tasks of the store, as one instance reaches them."""

    def __init__(self, store: SharedStore, process: Process) -> None:
        self._store = store
        self._process = process
        self._tasks = store.memory.tasks
        self.listeners = ChangeListeners()

    async def add(self, entry: CallEntry) -> bool:
        sent = entry.copy()

        async def add() -> bool:
            added = await self._tasks.add(sent)
            if added:
                self._store.kept(sent)
                self._store.wrote(None, sent, self._process)
                self._store.announce(sent.call_id)
            return added

        return await self._store.ask(add)

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        return await self._store.ask(lambda: self._tasks.load(call_id), call_id)

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        sent = entry.copy()

        async def save() -> bool:
            before, _ = await self._tasks.load(sent.call_id)
            saved = await self._tasks.save(sent, version=version)
            if saved:
                self._store.kept(sent)
                self._store.wrote(before, sent, self._process)
                self._store.note_holder(sent.call_id, sent, self._process)
                self._store.announce(sent.call_id)
            return saved

        return await self._store.ask(save, sent.call_id)

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        return await self._store.ask(lambda: self._tasks.due(limit))

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        return await self._store.ask(lambda: self._tasks.list(limit=limit, states=states))

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        return await self._store.ask(lambda: self._tasks.labelled(label, limit=limit, after=after))

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        return await self._store.ask(lambda: self._tasks.scan(after=after, limit=limit))

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        return self.listeners.listen(changed)
