"""Store tasks in the memory of one process."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from roundtrip.ledger.listeners import ChangeListeners
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.memory_room import MemoryRoom
from roundtrip.ledger.tasks import CallEntry, EntrySummary, summary_of

_MAX_STALE: Final = 1024
_ENTRY_BYTES: Final = 1024
"""The rough size of a task without its content and its notes."""


class MemoryCallStore:
    """Task store of one process.

    Args:
        clock: Returns the seconds since the epoch.
        max_bytes: The approximate limit of its size. A full store takes no new tasks, as clients decide how many there
            are and may leave them. An account gets no new one while its tasks are as large as the free room, so that
            others find some.
    """

    def __init__(self, clock: Callable[[], float], *, max_bytes: int) -> None:
        self._clock = clock
        self._room = MemoryRoom(max_bytes, kind="tasks", age="task_ttl")
        self._lock = threading.Lock()
        self._entries: dict[str, CallEntry] = {}
        self._times: list[tuple[float, str]] = []
        """A heap of the times at which tasks are due. A time that is not its task's any more is stale."""
        self._labelled: dict[str, set[str]] = {}
        """The calls of tasks by their labels."""
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
            return None if entry is None else _loaded(entry), self._clock()

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        with self._lock:
            stored = self._entries.get(entry.call_id)
            if stored is None or stored.version != version:
                return False
            if entry.is_over(self._clock()):
                self._label(entry.call_id, ())
                self._room.resize(stored.account, -_size_of(self._entries.pop(entry.call_id)))
            else:
                self._put(entry)
        self._listeners.announce(entry.call_id)
        return True

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""
        found: dict[str, float] = {}
        with self._lock:
            now = self._clock()
            while self._times and len(found) < limit:
                at, call_id = self._times[0]
                entry = self._entries.get(call_id)
                is_current = entry is not None and entry.due == at
                if is_current and at > now:
                    break
                heapq.heappop(self._times)
                if is_current:
                    found[call_id] = at
            # Until it changes, it stays due.
            for call_id, at in found.items():
                heapq.heappush(self._times, (at, call_id))
            following = self._times[0][0] - now if self._times and not found else None
        return list(found), following

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
            places = {call_id: (self._entries[call_id].created, call_id) for call_id in self._labelled.get(label, ())}
            later = [call_id for call_id, place in places.items() if after is None or place > after]
            oldest = heapq.nsmallest(limit, later, key=places.__getitem__)
            return [summary_of(self._entries[call_id]) for call_id in oldest]

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Implement `CallStore.scan`."""
        with self._lock:
            calls = heapq.nsmallest(limit, (call_id for call_id in self._entries if call_id > after))
            return [_loaded(self._entries[call_id]) for call_id in calls]

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Implement `CallStore.listen`."""
        return self._listeners.listen(changed)

    def _put(self, entry: CallEntry) -> None:
        before = self._entries.get(entry.call_id)
        self._room.resize(entry.account, _size_of(entry) - (_size_of(before) if before is not None else 0))
        self._label(entry.call_id, entry.labels)
        self._entries[entry.call_id] = entry.copy()
        heapq.heappush(self._times, (entry.due, entry.call_id))
        if len(self._times) > _MAX_STALE + 2 * len(self._entries):
            self._times = [(one.due, one.call_id) for one in self._entries.values()]
            heapq.heapify(self._times)

    def _label(self, call_id: str, labels: Sequence[str]) -> None:
        before = self._entries.get(call_id)
        for label in before.labels if before is not None else ():
            if label not in labels:
                self._labelled[label].discard(call_id)
                if not self._labelled[label]:
                    del self._labelled[label]
        for label in labels:
            self._labelled.setdefault(label, set()).add(call_id)


def _loaded(entry: CallEntry) -> CallEntry:
    return replace(entry, notes=entry.notes.copy(), stored_notes=len(entry.notes))


def _size_of(entry: CallEntry) -> int:
    return _ENTRY_BYTES + len(entry.content) + sum(map(len, entry.notes))
