"""Task-store contract, and the rules for a stored task, independent of storage and clock.

A store keeps each task as an entry. Only servers with the right keys can read the entry's content. `CallEntry`
implements all rules in Python; a store only compares versions and writes entries. So every change follows the same
pattern: read the entry, apply an event, and write the entry back if no other process wrote first.
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
"""Function that waits for the next change to the call. Changes since the previous wait, or since listening began, also
count. The function may also return without a change.
"""

MAX_TRIES: Final = 10
"""Maximum number of times that a task is claimed without making progress. If the worker with the last claim dies, the
task is lost. Without this limit, a body that kills its process would kill every worker in turn.
"""
_MAX_WRITES: Final = 64


@dataclass(slots=True)
class CallEntry:
    """State of one stored task. Only transitions of `TASK_MACHINE` change it.

    `due` is the time at which a worker must look at the task. A task that should run is due now. A running task is due
    when its lease ends, and a waiting task at its wake-up time. All other tasks are due when they expire.
    """

    call_id: str
    tool: str
    created: float
    expires: float
    state: StoredState = StoredState.DUE
    due: float = 0.0
    updated: float = 0.0
    holder: str = ""
    """The worker that has the lease. After a lease has expired, this is still the former worker until the task is
    claimed again.
    """
    epoch: int = 0
    runs_once: bool = False
    """True if the task's body must not begin twice."""
    has_begun: bool = False
    """True while a body that must not begin twice is running."""
    tries: int = 0
    """The number of claims since the task last made progress, including the current claim."""
    deaths: int = 0
    """The number of leases on this task that ended because the worker was dead or silent."""
    version: int = 0
    """A number that each write increments. A store replaces an entry only if the entry still has the version that
    was read.
    """
    content: str = ""
    """The encrypted part of the task, which only servers with the keys can read."""
    labels: tuple[str, ...] = ()
    """Opaque words without spaces. A store finds the task by these labels until the task ends."""
    notes: list[str] = field(default_factory=list[str])
    """Step results recorded since the task was last parked."""
    account: str | None = field(default=None, compare=False)
    """The account that owns a new task; see `MemoryLedger`. Stores without a size limit ignore it."""
    takes_over: bool = field(default=False, compare=False)
    """True if the current worker claimed the task after the previous lease had expired."""
    stored_notes: int | None = field(default=0, compare=False)
    """The number of notes that the store already has. If None, the store replaces its notes with the current notes."""

    def copy(self) -> "CallEntry":
        """Return an independent copy."""
        return replace(self, notes=self.notes.copy())

    @property
    def new_notes(self) -> list[str]:
        """Return the notes that the store lacks. If the store must replace its notes, return all notes."""
        return self.notes if self.drops_notes else self.notes[self.stored_notes :]

    @property
    def drops_notes(self) -> bool:
        """Return True if the store has notes that the task no longer has."""
        return self.stored_notes is None or len(self.notes) < self.stored_notes

    @property
    def has_ended(self) -> bool:
        """Return True if the task has ended from the client's point of view."""
        return self.state in ENDED

    def is_over(self, now: float) -> bool:
        """Return True if the task has ended and expired, so that the store can delete it."""
        return self.state in TASK_MACHINE.final and now >= self.expires

    def apply(self, event: StoredEvent, now: float) -> bool:
        """Apply an event. Return False and change nothing if the state machine has no matching transition."""
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
        """Apply the transitions that are due at this time. Return True if the task changed.

        Args:
            now: The time.
            writer: Holder and epoch of the worker that is writing the task, if any. The lease does not lapse while this
                worker has the claim.
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
        """End the lease of a worker that is dead or presumed dead. Return False if no worker has a lease."""
        is_lost = (self.runs_once and self.has_begun) or self.tries >= MAX_TRIES
        if not self.apply(StoredEvent.LOSE if is_lost else StoredEvent.LAPSE, now):
            return False
        self.deaths += 1
        return True

    def claim(self, holder: str, now: float, *, lease: float) -> bool:
        """Give a worker the lease. Return False if the task is not due."""
        takes_over = bool(self.holder)
        if not self.apply(StoredEvent.CLAIM, now):
            return False
        self.takes_over = takes_over
        self.holder, self.epoch, self.due = holder, self.epoch + 1, now + lease
        self.tries += 1
        return True

    def is_held(self, holder: str, epoch: int) -> bool:
        """Return True if the current lease belongs to this holder and has this epoch."""
        return self.state is StoredState.RUNNING and self.holder == holder and self.epoch == epoch

    def note(self, text: str, now: float, *, lease: float) -> None:
        """Store a step's result and extend the lease. The caller has already checked the lease."""
        self.apply(StoredEvent.NOTE, now)
        self.due = now + lease
        self.notes.append(text)
        self.tries = 1

    def give_up(self, now: float) -> None:
        """Give up the lease before the leg ends. A worker then continues the task, unless the task's outcome is
        unknown.
        """
        if self.runs_once and self.has_begun:
            self.apply(StoredEvent.LOSE, now)
        else:
            self.apply(StoredEvent.YIELD, now)
            self.tries -= 1

    def retry(self, now: float) -> bool:
        """Let a worker continue a lost task after its last stored step. Return False if the task is not lost."""
        if not self.apply(StoredEvent.RETRY, now):
            return False
        self.has_begun, self.tries = False, 0
        return True

    def shift(self, seconds: float) -> None:
        """Shift all times by the given seconds, to convert them to another clock."""
        self.created += seconds
        self.updated += seconds
        self.due += seconds
        self.expires += seconds

    def renew(self, now: float, *, lease: float) -> None:
        """Extend the lease. The caller has already checked the lease."""
        self.apply(StoredEvent.RENEW, now)
        self.due = now + lease

    def park(self, event: StoredEvent, now: float, *, due: float | None = None) -> None:
        """Give up the lease while the task waits. The journal now contains all step results.

        Args:
            event: `ASK` or `WAIT`.
            now: The time.
            due: The time at which the task must continue, or None if there is no such time.
        """
        self.apply(event, now)
        self.notes.clear()
        self.has_begun, self.tries = False, 0
        if due is not None:
            self.due = min(due, self.expires)


TASK_FIELDS: Final = tuple(each.name for each in fields(CallEntry))[:15]
"""The fields of `CallEntry` up to and including `content`. A store keeps these fields, the labels and the notes."""


def values_of(entry: CallEntry) -> list[Any]:
    """Return the task's values for `TASK_FIELDS`."""
    return [getattr(entry, name) for name in TASK_FIELDS]


def entry_of(values: Sequence[Any], labels: Sequence[str], notes: list[str]) -> CallEntry:
    """Build a task from its stored `TASK_FIELDS` values, labels and notes."""
    entry = CallEntry(*values, labels=tuple(labels), notes=notes, stored_notes=len(notes))
    entry.state = StoredState(entry.state)
    entry.runs_once, entry.has_begun = bool(entry.runs_once), bool(entry.has_begun)
    return entry


class EntrySummary(NamedTuple):
    """The part of a task that its store can read without keys."""

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
    """Return the part of a task that its store can read without keys."""
    return EntrySummary(*(getattr(entry, name) for name in EntrySummary._fields))


def stored_summary(values: Iterable[Any]) -> EntrySummary:
    """Build a summary from stored values, in the field order of `EntrySummary`."""
    call_id, tool, state, *rest = values
    return EntrySummary(call_id, tool, StoredState(state), *rest)


@runtime_checkable
class CallStore(Protocol):
    """Task storage. Every method raises `LedgerDown` within a bounded time if the store fails."""

    async def add(self, entry: CallEntry) -> bool:
        """Store a new task. Return False and change nothing if the call already has a task."""
        ...

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Return a copy of a task and the store's current time, both read atomically."""
        ...

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Replace a task if its stored version is `version`, and announce the change. Otherwise return False.

        Append `new_notes` to the stored notes. If the task has ended and expired, delete it instead.
        """
        ...

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Return the calls whose tasks are due, with the longest overdue call first.

        If no task is due, also return the seconds until the next task is due.
        """
        ...

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Return the most recently changed tasks in the given states, or in any state."""
        ...

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Return tasks that have a label, ordered by creation time and call.

        Args:
            label: The label.
            limit: The maximum number of tasks.
            after: Creation time and call of the last task on the previous page.
        """
        ...

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Return copies of the tasks whose call id is greater than `after`, ordered by call id. If `after` is empty,
        begin with the first task.
        """
        ...

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Call a function with the call id of each task that any process changes. The function runs on this event loop.

        If the store may have missed changes, it passes None to the function. Returns a function that stops listening.
        """
        ...


@runtime_checkable
class HasCallStore(Protocol):
    """Ledger that also stores tasks."""

    @property
    def tasks(self) -> CallStore:
        """Return the ledger's task store."""
        ...


@contextmanager
def changes_of(store: CallStore, call_id: str) -> Generator[NextChange]:
    """Listen for changes to a call, made by any process. Within the context, read the call first, and then await the
    next change.
    """
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
    """The task as its worker last saw it. With this copy, the worker need not read the task before each write.

    Args:
        entry: The task as the worker claimed it.
        now: The store's time when the task was read.
        clock: The worker's clock.
    """

    def __init__(self, entry: CallEntry, now: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.writer: Final = (entry.holder, entry.epoch)
        """The worker's lease, see `CallEntry.advance`."""
        self.remember_read(entry, now)

    def remember_read(self, entry: CallEntry, now: float) -> None:
        """Remember the task that was just read."""
        self._entry = entry.copy()
        self._ahead = now - self._clock()

    def remember_write(self, entry: CallEntry) -> None:
        """Remember the task that was just written."""
        self._entry = entry

    def load(self) -> tuple[CallEntry, float]:
        """Return a copy of the task and the estimated store time, like `CallStore.load`."""
        return self._entry.copy(), self._clock() + self._ahead


async def change_task(
    store: CallStore,
    call_id: str,
    work: Callable[[CallEntry, float], T],
    *,
    seen: SeenEntry | None = None,
    ended: Callable[[StoredState, CallEntry, float], None] | None = None,
) -> T | None:
    """Change a task. Return the result of `work`, or None if the task does not exist.

    Args:
        store: The store.
        call_id: The task's call.
        work: Receives the entry and the current time, and changes the entry in place. It may raise. It runs again if
            another process wrote first.
        seen: The worker's last view of the task. With it, the first attempt need not read the task. Every further
            attempt reads the task and updates this view.
        ended: Called with the previous state, the task and the time if this change ended the task.

    Raises:
        LedgerDown: The store cannot be used, or other processes changed the task at every attempt.
    """
    for attempt in range(_MAX_WRITES):
        entry, now = await store.load(call_id) if seen is None or attempt else seen.load()
        if entry is None:
            return None
        if seen is not None and attempt:
            seen.remember_read(entry, now)
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
                seen.remember_write(entry)
            if ended is not None and entry.has_ended and before.state not in ENDED:
                ended(before.state, entry, now)
            return result
    raise LedgerDown(f"the task of call {call_id} cannot be changed: other processes changed it at every attempt")
