"""`MemoryLedger` and its task store, for a server that runs as one process."""

from __future__ import annotations

import bisect
import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from roundtrip.ledger.contract import LedgerDown, ListedEntry, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import ChangeListeners
from roundtrip.ledger.machines import EntryState, StoredState
from roundtrip.ledger.tasks import CallEntry, EntrySummary, summary_of
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import SYSTEM, System

T = TypeVar("T")

_MAX_STALE_EXPIRIES: Final = 1024
_MAX_LEDGER_BYTES: Final = 256 * 1024 * 1024
_TASK_BYTES: Final = 1024
"""Estimated size of a task without its content and notes."""


class _MemoryRoom:
    """Memory limit for entries. An account gets no new entry once it uses as much memory as is still free.

    Args:
        max_bytes: The approximate limit for all entries together.
        kind: The plural name of the entries, for error messages.
        age: The tool option that makes entries expire sooner.
    """

    def __init__(self, max_bytes: int, *, kind: str, age: str) -> None:
        self._max_bytes = max_bytes
        self._kind = kind
        self._advice = (
            f"use a SqliteLedger, RedisLedger or PostgresLedger, give tools a shorter {age}, or raise "
            "MemoryLedger(max_bytes=...)"
        )
        self._bytes = 0
        self._account_bytes: dict[str, int] = {}

    def resize(self, account: str | None, change: int) -> None:
        """Record by how many bytes an account's entries have grown or shrunk."""
        self._bytes += change
        if account is not None:
            used_bytes = self._account_bytes[account] = self._account_bytes.get(account, 0) + change
            if not used_bytes:
                del self._account_bytes[account]

    def require(self, account: str | None, *, entries: int) -> None:
        """Check that there is room for a new entry.

        Args:
            account: The entry's owner.
            entries: The current number of entries, for the error message.

        Raises:
            LedgerDown: There is no room for the entry.
        """
        if self._bytes >= self._max_bytes:
            raise LedgerDown(
                f"the memory ledger is full, with {entries} {self._kind} in about {self._bytes} bytes; {self._advice}"
            )
        used_bytes = self._account_bytes.get(account, 0) if account is not None else 0
        if used_bytes >= self._max_bytes - self._bytes:
            raise LedgerDown(
                f"a caller has used its share of the memory ledger, {used_bytes} of {self._max_bytes} bytes; the rest "
                f"is reserved for other callers (a tool's unauthenticated calls count as one caller); {self._advice}"
            )


class MemoryLedger(EntryLedger):
    """Ledger in the memory of one process, the default for a server.

    Args:
        max_bytes: The approximate size limit. A full ledger grants no new claims until an entry expires, because
            forgetting an entry early could let a body run twice. An account gets no new claim if it uses more memory
            than is free. So one account can fill at most half of the ledger, and two accounts a third each.
        system: The clock.
    """

    reach = Reach.PROCESS
    """Implement `Ledger.reach`."""

    def __init__(self, *, max_bytes: int = _MAX_LEDGER_BYTES, system: System = SYSTEM) -> None:
        self._clock = system.time
        self._room = _MemoryRoom(max_bytes, kind="calls that clients may still repeat", age="max_age")
        # One server may run on several event loops, each in its own thread.
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._epochs = itertools.count(1)
        self._waiting = Waiting()
        self._expiries: list[tuple[float, str]] = []
        self.tasks = MemoryCallStore(system.time, max_bytes=max_bytes)
        """The task store, also in memory."""

    async def aclose(self) -> None:
        """Implement `Ledger.aclose`; a memory ledger has nothing to close."""

    async def list_entries(self, prefix: str, *, after: str = "", limit: int) -> tuple[Sequence[ListedEntry], str]:
        """Implement `ListsEntries.list_entries`."""
        with self._lock:
            now = self._clock()
            keys = heapq.nsmallest(limit, (key for key in self._entries if key.startswith(prefix) and key > after))
            found = [(key, entry) for key in keys if (entry := self._find(key, now)) is not None]
            return [entry.listed(key) for key, entry in found], keys[-1] if len(keys) == limit else ""

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        del with_notes  # entries in memory always have their notes
        with self._lock:
            now = self._clock()
            existing = self._find(key, now)
            entry = existing or LedgerEntry()
            account, size, expires, notes = entry.account, entry.size, entry.expires, entry.notes.copy()
            result = work(entry, now)
            if existing is not None and entry.size > size and entry.notes != notes:
                try:
                    self._room.require(entry.account, entries=len(self._entries))
                except LedgerDown:
                    # Notes that do not fit are not kept. A result is kept in any case, because its body has run.
                    entry.notes = notes
                    self._room.resize(account, entry.size - size)
                    raise
            if entry.state is EntryState.FREE and not entry.notes:
                if existing is not None:
                    self._drop(key)
                return result
            if existing is None:
                self._room.require(entry.account, entries=len(self._entries))
                self._entries[key] = entry
            else:
                self._room.resize(account, -size)
            self._room.resize(entry.account, entry.size)
            if entry.expires != expires:
                heapq.heappush(self._expiries, (entry.expires, key))
            return result

    def _next_epoch(self, now: float) -> int:
        return next(self._epochs)

    def _find(self, key: str, now: float) -> LedgerEntry | None:
        """Forget expired entries, and return the current state of the key's entry."""
        if len(self._expiries) > _MAX_STALE_EXPIRIES + 4 * len(self._entries):
            # Most expiry records belong to released entries, so rebuild the heap.
            self._expiries = [(entry.expires, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiries)
        while self._expiries and self._expiries[0][0] <= now:
            _, expired = heapq.heappop(self._expiries)
            entry = self._entries.get(expired)
            if entry is not None and entry.expires <= now:
                self._drop(expired)
        entry = self._entries.get(key)
        if entry is not None:
            entry.advance(now)
            if entry.state is EntryState.FREE and not entry.notes:
                self._drop(key)
                return None
        return entry

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._room.resize(entry.account, -entry.size)


class MemoryCallStore:
    """Task store in the memory of one process.

    Args:
        clock: Returns the seconds since the epoch.
        max_bytes: The approximate size limit. A full store accepts no new tasks, because clients can create any number
            of tasks and abandon them. An account gets no new task once it uses as much memory as is still free. So some
            memory remains for other accounts.
    """

    def __init__(self, clock: Callable[[], float], *, max_bytes: int) -> None:
        self._clock = clock
        self._room = _MemoryRoom(max_bytes, kind="tasks", age="task_ttl")
        self._lock = threading.Lock()
        self._entries: dict[str, CallEntry] = {}
        self._due_times: list[tuple[float, str]] = []
        """A heap of due times, each with the call that is due at this time."""
        self._calls_by_label: dict[str, set[str]] = {}
        """The calls with each label."""
        self._listeners = ChangeListeners()

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""
        with self._lock:
            if entry.call_id in self._entries:
                return False
            self._room.require(entry.account, entries=len(self._entries))
            self._put(entry)
        self._listeners.announce(entry.call_id)
        return True

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Implement `CallStore.load`."""
        with self._lock:
            entry = self._entries.get(call_id)
            return None if entry is None else _stored_copy(entry), self._clock()

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        with self._lock:
            stored = self._entries.get(entry.call_id)
            if stored is None or stored.version != version:
                return False
            self._remove_from_indexes(stored)
            if entry.is_over(self._clock()):
                del self._entries[entry.call_id]
            else:
                self._put(entry)
        self._listeners.announce(entry.call_id)
        return True

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""
        with self._lock:
            now, first = self._clock(), self._due_times[:limit]
        due_calls = [call_id for at, call_id in first if at <= now]
        return due_calls, first[0][0] - now if first and not due_calls else None

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Implement `CallStore.list`."""
        with self._lock:
            entries = [entry for entry in self._entries.values() if not states or entry.state in states]
            newest = heapq.nlargest(limit, entries, key=lambda entry: entry.updated)
            return [summary_of(entry) for entry in newest]

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Implement `CallStore.labelled`."""
        with self._lock:
            positions = {
                call_id: (self._entries[call_id].created, call_id) for call_id in self._calls_by_label.get(label, ())
            }
            later = [call_id for call_id, position in positions.items() if after is None or position > after]
            oldest = heapq.nsmallest(limit, later, key=positions.__getitem__)
            return [summary_of(self._entries[call_id]) for call_id in oldest]

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Implement `CallStore.scan`."""
        with self._lock:
            calls = heapq.nsmallest(limit, (call_id for call_id in self._entries if call_id > after))
            return [_stored_copy(self._entries[call_id]) for call_id in calls]

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Implement `CallStore.listen`."""
        return self._listeners.listen(changed)

    def _put(self, entry: CallEntry) -> None:
        self._entries[entry.call_id] = entry.copy()
        self._room.resize(entry.account, _size_of(entry))
        bisect.insort(self._due_times, (entry.due, entry.call_id))
        for label in entry.labels:
            self._calls_by_label.setdefault(label, set()).add(entry.call_id)

    def _remove_from_indexes(self, entry: CallEntry) -> None:
        self._room.resize(entry.account, -_size_of(entry))
        del self._due_times[bisect.bisect_left(self._due_times, (entry.due, entry.call_id))]
        for label in set(entry.labels):
            self._calls_by_label[label].discard(entry.call_id)
            if not self._calls_by_label[label]:
                del self._calls_by_label[label]


def _stored_copy(entry: CallEntry) -> CallEntry:
    return replace(entry, notes=entry.notes.copy(), stored_notes=len(entry.notes))


def _size_of(entry: CallEntry) -> int:
    return _TASK_BYTES + len(entry.content) + sum(map(len, entry.notes))
