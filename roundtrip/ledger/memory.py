"""Provide `MemoryLedger`, for a server that is one process."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from roundtrip.ledger.contract import Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.machines import EntryState
from roundtrip.ledger.memory_room import MemoryRoom
from roundtrip.ledger.waiting import Waiting
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System

if TYPE_CHECKING:
    from roundtrip.ledger import memory_tasks
else:
    load_on_use(globals(), "roundtrip.ledger.memory_tasks")

T = TypeVar("T")

_MAX_STALE_EXPIRIES: Final = 1024
_MAX_LEDGER_BYTES: Final = 256 * 1024 * 1024


class MemoryLedger(EntryLedger):
    """Ledger in the memory of one process: the default of a server.

    Args:
        max_bytes: The approximate limit of its size. A full ledger grants no new claims until an entry expires: if it
            forgot one earlier, a body could run twice. An account gets no new claim while its entries are as large as
            the free room. So one account can fill half of the ledger, two can fill a third each, and others find room.
        system: The clock.
    """

    reach = Reach.PROCESS
    """Implement `Ledger.reach`."""

    def __init__(self, *, max_bytes: int = _MAX_LEDGER_BYTES, system: System = SYSTEM) -> None:
        self._clock = system.monotonic
        self._max_bytes = max_bytes
        self._room = MemoryRoom(max_bytes, kind="calls that may still be sent again", age="max_age")
        # A server may serve on several event loops.
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._epochs = itertools.count(1)
        self._waiting = Waiting()
        self._expiries: list[tuple[float, str]] = []
        self._system = system

    @cached_property
    def tasks(self) -> memory_tasks.MemoryCallStore:
        """Return the store of tasks, which is in memory, too."""
        return memory_tasks.MemoryCallStore(self._system.time, max_bytes=self._max_bytes)

    async def aclose(self) -> None:
        """Implement `Ledger.aclose`; there is nothing to close."""

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        del with_notes  # always there
        with self._lock:
            now = self._clock()
            found = self._find(key, now)
            entry = found or LedgerEntry()
            account, size, expires = entry.account, entry.size, entry.expires
            result = work(entry, now)
            if entry.state is EntryState.FREE and not entry.notes:
                if found is not None:
                    self._drop(key)
                return result
            if found is None:
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
        """Forget expired entries, and return the entry of a key in its current state."""
        if len(self._expiries) > _MAX_STALE_EXPIRIES + 4 * len(self._entries):
            # Most of them belong to entries that were released.
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
