"""Provide the contract of task stores, and the rules of a stored task, without storage and clock.

A store keeps a task as an entry whose content only servers with its keys can read. All rules are in `CallEntry`, in
Python: a store only compares and sets. So every change is made the same way: read the entry, apply an event, and write
it back if no other process was faster.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import anyio

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.lease import is_buried
from roundtrip.ledger.machines import ENDED, TASK_MACHINE, StoredEvent, StoredState

T = TypeVar("T")

NextChange = Callable[[], Awaitable[None]]
"""Returns once something has changed since the last time, or since the beginning; at times it returns too often."""

MAX_TRIES: Final = 10
"""Workers that may die with a task. A body that ends its process would otherwise end one after another."""
_MAX_WRITES: Final = 64


@dataclass(slots=True)
class CallEntry:
    """State of one task in a store, which changes only as `TASK_MACHINE` allows.

    `due` is the time at which a worker has to look at it: now if it should run, the end of the lease while it runs,
    the time for which it waits, and the end of its life otherwise.
    """

    call_id: str
    tool: str
    created: float
    expires: float
    state: StoredState = StoredState.DUE
    due: float = 0.0
    updated: float = 0.0
    holder: str = ""
    """The worker that has the lease; while the task is due, the one whose lease ended without a word of it."""
    epoch: int = 0
    runs_once: bool = False
    """True if its body must not begin twice."""
    has_begun: bool = False
    """True while a body that must not begin twice runs."""
    tries: int = 0
    """The number of workers that have died with it since something was last stored."""
    deaths: int = 0
    """The number of workers whose leases on it ended without a word of them."""
    version: int = 0
    """The number of its writes. A store writes it only over the version that was read."""
    content: str = ""
    """Everything that only the server reads."""
    labels: tuple[str, ...] = ()
    """Opaque words, without spaces, by which it can be found until it ends."""
    notes: list[str] = field(default_factory=list[str])
    """The results of steps since it was last parked."""
    account: str | None = field(default=None, compare=False)
    """The owner of a new task; see `MemoryLedger`. Stores with much room do not keep it."""
    takes_over: bool = field(default=False, compare=False)
    """True if the claim that was made with this copy follows a worker whose lease ended without a word of it."""
    stored_notes: int | None = field(default=0, compare=False)
    """The number of notes that the store has, and needs no more; None if it must drop them for the present ones."""

    def copy(self) -> "CallEntry":
        """Return a copy, which can be changed."""
        return replace(self, notes=self.notes.copy())

    @property
    def new_notes(self) -> list[str]:
        """Return the notes that the store lacks; all if it has to drop those that it has."""
        return self.notes if self.drops_notes else self.notes[self.stored_notes :]

    @property
    def drops_notes(self) -> bool:
        """Return True if the store has notes that the task has not."""
        return self.stored_notes is None or len(self.notes) < self.stored_notes

    @property
    def has_ended(self) -> bool:
        """Return True if it has ended for its client."""
        return self.state in ENDED

    def is_over(self, now: float) -> bool:
        """Return True if it has ended, and is past its life: then a store deletes it."""
        return self.state in TASK_MACHINE.final and now >= self.expires

    def apply(self, event: StoredEvent, now: float) -> bool:
        """Apply an event. Return False, and change nothing, if the table has no such arrow."""
        target = TASK_MACHINE.targets.get((self.state, event))
        if target is None:
            return False
        if target is not self.state:
            self.due = now if target is StoredState.DUE else self.expires
            if event is not StoredEvent.LAPSE:
                self.holder = ""
            if target in ENDED:
                self.labels = ()
        self.state, self.updated = target, now
        return True

    def advance(self, now: float, *, writer: tuple[str, int] | None = None) -> bool:
        """Apply the events of time. Return True if it has changed.

        Args:
            now: The time.
            writer: The holder and the epoch of the worker that changes it, if one does. Its own lease does not lapse:
                no other worker has claimed the task.
        """
        is_dead = self.state is StoredState.RUNNING and is_buried(self.holder)
        if self.state in TASK_MACHINE.final or (now < min(self.due, self.expires) and not is_dead):
            return False
        if now >= self.expires:
            return self.apply(StoredEvent.EXPIRE, now)
        if writer is not None and self.is_held(*writer):
            return False
        if self.state is StoredState.RUNNING:
            return self.end_lease(now)
        return self.apply(StoredEvent.WAKE, now)

    def end_lease(self, now: float) -> bool:
        """End the lease of a worker that is dead, or counts as dead. Return False if no worker has one."""
        is_lost = (self.runs_once and self.has_begun) or self.tries >= MAX_TRIES
        if not self.apply(StoredEvent.LOSE if is_lost else StoredEvent.LAPSE, now):
            return False
        self.deaths += 1
        return True

    def claim(self, holder: str, now: float, *, lease: float) -> bool:
        """Give a worker the lease, unless another has it."""
        takes_over = bool(self.holder)
        if not self.apply(StoredEvent.CLAIM, now):
            return False
        self.takes_over = takes_over
        self.holder, self.epoch, self.due = holder, self.epoch + 1, now + lease
        self.tries += 1
        return True

    def is_held(self, holder: str, epoch: int) -> bool:
        """Return True if the lease of this epoch is the current one."""
        return self.state is StoredState.RUNNING and self.holder == holder and self.epoch == epoch

    def note(self, text: str, now: float, *, lease: float) -> None:
        """Store the result of a step, and extend the lease. The caller has checked that it holds it."""
        self.apply(StoredEvent.NOTE, now)
        self.due = now + lease
        self.notes.append(text)
        self.tries = 1

    def give_up(self, now: float) -> None:
        """Give up the lease before the leg has ended, so that a worker continues, unless the outcome is unknown."""
        if self.runs_once and self.has_begun:
            self.apply(StoredEvent.LOSE, now)
        else:
            self.apply(StoredEvent.YIELD, now)
            self.tries -= 1

    def retry(self, now: float) -> bool:
        """Let a worker continue a lost task behind its stored steps. Return False if it is not lost."""
        if not self.apply(StoredEvent.RETRY, now):
            return False
        self.has_begun, self.tries = False, 0
        return True

    def shift(self, seconds: float) -> None:
        """Move all times, to those of another clock."""
        self.created += seconds
        self.updated += seconds
        self.due += seconds
        self.expires += seconds

    def renew(self, now: float, *, lease: float) -> None:
        """Extend the lease. The caller has checked that it holds it."""
        self.apply(StoredEvent.RENEW, now)
        self.due = now + lease

    def park(self, event: StoredEvent, now: float, *, due: float | None = None) -> None:
        """Give up the lease with a journal that has all results of steps.

        Args:
            event: `ASK` or `WAIT`.
            now: The time.
            due: The time at which it has to go on; None for none.
        """
        self.apply(event, now)
        self.notes.clear()
        self.has_begun, self.tries = False, 0
        if due is not None:
            self.due = min(due, self.expires)


TASK_FIELDS: Final = tuple(each.name for each in fields(CallEntry))[:15]
"""The first fields of `CallEntry`, up to its content. A store keeps them, the labels and the notes."""


def values_of(entry: CallEntry) -> list[Any]:
    """Return the values of `TASK_FIELDS`."""
    return [getattr(entry, name) for name in TASK_FIELDS]


def entry_of(values: Sequence[Any], labels: Sequence[str], notes: list[str]) -> CallEntry:
    """Return a task as its store has kept it: the values of `TASK_FIELDS`, its labels and its notes."""
    entry = CallEntry(*values, labels=tuple(labels), notes=notes, stored_notes=len(notes))
    entry.state = StoredState(entry.state)
    entry.runs_once, entry.has_begun = bool(entry.runs_once), bool(entry.has_begun)
    return entry


class EntrySummary(NamedTuple):
    """Facts of a task that its store can read."""

    call_id: str
    tool: str
    state: StoredState
    created: float
    updated: float
    due: float
    expires: float
    epoch: int
    holder: str = ""


def summary_of(entry: CallEntry) -> EntrySummary:
    """Return the facts of a task that its store can read."""
    return EntrySummary(*(getattr(entry, name) for name in EntrySummary._fields))


def stored_summary(values: Iterable[Any]) -> EntrySummary:
    """Return the facts of a task as its store has kept them, in the order of `EntrySummary`."""
    call_id, tool, state, *rest = values
    return EntrySummary(call_id, tool, StoredState(state), *rest)


@runtime_checkable
class CallStore(Protocol):
    """Storage of tasks. All of its methods raise `LedgerDown` within a bounded time."""

    async def add(self, entry: CallEntry) -> bool:
        """Store a new task. Return False, and change nothing, if its call has one."""
        ...

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Return a copy of a task, and the time of the store's clock. Read it in one step."""
        ...

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Replace a task if it still has a version, and announce it. Return False otherwise.

        It deletes a task that has ended and is past its life. Of the notes it needs `new_notes`.
        """
        ...

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Return the calls of tasks that are due, the longest due first, and the seconds until the next one is."""
        ...

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Return the tasks that changed last, of some states or of all."""
        ...

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Return tasks that have a label, in the order of their creation and then of their calls.

        Args:
            label: The label.
            limit: The most tasks to return.
            after: The creation and the call of the last task of the page before.
        """
        ...

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Return copies of the tasks whose calls are behind a call, in the order of their calls; "" for the first."""
        ...

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Call a function with the call of each task that any process changes, on this event loop.

        It is called with None if changes may have been missed. Returns a function that ends it.
        """
        ...


@runtime_checkable
class HasCallStore(Protocol):
    """Ledger that stores tasks, too."""

    @property
    def tasks(self) -> CallStore:
        """Return the store of its tasks."""
        ...


@contextmanager
def changes_of(store: CallStore, call_id: str) -> Generator[NextChange]:
    """Listen for changes of a call by any process. Look at the call inside, and then wait for the next change."""
    changed = anyio.Event()

    def note(other: str | None) -> None:
        if other in (None, call_id):
            changed.set()

    async def next_change() -> None:
        nonlocal changed
        await changed.wait()
        changed = anyio.Event()

    stop = store.listen(note)
    try:
        yield next_change
    finally:
        stop()


class SeenEntry:
    """Task as its worker has last seen it, which saves reading it before each write.

    Args:
        entry: The task, as the worker has claimed it.
        now: The time of the store's clock when it was read.
        clock: Another clock, which the worker has.
    """

    def __init__(self, entry: CallEntry, now: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.writer: Final = (entry.holder, entry.epoch)
        """The lease of the worker; see `CallEntry.advance`."""
        self.saw(entry, now)

    def saw(self, entry: CallEntry, now: float) -> None:
        """Keep a task as it was read."""
        self._entry = entry.copy()
        self._ahead = now - self._clock()

    def wrote(self, entry: CallEntry) -> None:
        """Keep a task as it was written."""
        self._entry = entry

    def load(self) -> tuple[CallEntry, float]:
        """Return a copy of the task, and the time of the store's clock, as `CallStore.load` does."""
        return self._entry.copy(), self._clock() + self._ahead


async def change_task(
    store: CallStore,
    call_id: str,
    work: Callable[[CallEntry, float], T],
    *,
    seen: SeenEntry | None = None,
    ended: Callable[[StoredState, CallEntry, float], None] | None = None,
) -> T | None:
    """Change a task, and return what `work` returns; None if there is no such task.

    Args:
        store: The store.
        call_id: Its call.
        work: Changes the entry that it gets, as it is at the time that it gets. It runs again if another process was
            faster, and may raise.
        seen: The task as the worker that changes it has last seen it, which is tried first, and brought up to date.
        ended: Called if the task has ended by that, with its state before, the task, and the time.

    Raises:
        LedgerDown: The store cannot be used, or too many processes change the task.
    """
    for attempt in range(_MAX_WRITES):
        entry, now = await store.load(call_id) if seen is None or attempt else seen.load()
        if entry is None:
            return None
        if seen is not None and attempt:
            seen.saw(entry, now)
        before = entry.copy()
        entry.advance(now, writer=seen.writer if seen is not None else None)
        is_over = entry.is_over(now)
        result = None if is_over else work(entry, now)
        if entry == before and entry.stored_notes is not None and not is_over:
            return result
        entry.version += 1
        if await store.save(entry, version=before.version):
            entry.stored_notes = len(entry.notes)
            if seen is not None:
                seen.wrote(entry)
            if ended is not None and entry.has_ended and before.state not in ENDED:
                ended(before.state, entry, now)
            return result
    raise LedgerDown(f"task of call {call_id} changes too often")
