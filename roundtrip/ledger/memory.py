"""`MemoryLedger`: for a server that is one process."""

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from roundtrip.ledger.contract import Claim, EntryState, LedgerDown, Reach
from roundtrip.ledger.waiting import Waiting

__all__ = ["MemoryLedger"]

_STALE: Final = 1024
_MOST_BYTES: Final = 256 * 1024 * 1024
_ENTRY_BYTES: Final = 1024
"""About what an entry takes without its result and its notes."""


@dataclass(slots=True)
class _LedgerEntry:
    terms: str
    holder: str
    standing: EntryState | None
    """None where it was begun and taken back."""
    lapses: float
    expires: float
    tentative: bool = False
    account: str | None = None
    result: str | None = None
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """Of a key that is counted, its items."""

    @property
    def size(self) -> int:
        """About how many bytes it takes; what is kept is ASCII."""
        noted = sum(len(name) + len(value) for name, value in self.notes.items())
        return _ENTRY_BYTES + len(self.result or "") + noted


class MemoryLedger:
    """Keeps what was done in the memory of this process: the ledger of a server that has no other.

    Args:
        max_bytes: What it may hold, about. A full one lets nothing new begin until something may be forgotten: to
            forget it earlier would be to run it twice. An account that holds as much as is free lets nothing new
            begin either: one alone gets half, two get a third each, and others always find room.
        clock: Tells the time, in seconds.
    """

    def __init__(self, *, max_bytes: int = _MOST_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._bytes = 0
        self._held: dict[str, int] = {}
        """Bytes by account."""
        # A server may serve on several event loops.
        self._lock = threading.Lock()
        self._entries: dict[str, _LedgerEntry] = {}
        self._waiting = Waiting()
        self._expiries: list[tuple[float, str]] = []

    @property
    def reach(self) -> Reach:
        """As the contract says."""
        return Reach.PROCESS

    async def claim(
        self,
        key: str,
        terms: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        although_unknown: bool = False,
        tentative: bool = False,
        account: str | None = None,
    ) -> Claim:
        """As the contract says."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            entry = self._entries.get(key)
            notes: dict[str, str] = {}
            if entry is None:
                self._require_room(account)
            else:
                notes = entry.notes
                seen = _seen(entry, now)
                again = seen is not None and entry.holder == holder and seen.standing is EntryState.RUNNING
                if seen is not None and not again and not (although_unknown and seen.standing is EntryState.UNKNOWN):
                    return seen
                begun = entry.holder == holder and entry.standing is EntryState.RUNNING and not entry.tentative
                tentative = tentative and not begun
            if entry is not None:
                self._count(entry, -entry.size)
            entry = _LedgerEntry(
                terms, holder, EntryState.RUNNING, now + lease, now + keep, tentative, account, notes=notes
            )
            self._count(entry, entry.size)
            self._entries[key] = entry
            heapq.heappush(self._expiries, (now + keep, key))
            return Claim(EntryState.GRANTED, terms, notes=dict(notes))

    async def renew(self, key: str, *, holder: str, lease: float) -> bool:
        """As the contract says."""
        now = self._clock()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != holder or entry.standing is not EntryState.RUNNING:
                return False
            entry.lapses = now + lease
        return True

    async def settle(self, key: str, *, holder: str, result: str | None, keep: float) -> bool:
        """As the contract says."""
        now = self._clock()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != holder:
                return False
            if entry.standing is EntryState.SETTLED:
                return entry.result == result
            entry.standing = EntryState.UNKNOWN if result is None else EntryState.SETTLED
            entry.result = result
            self._count(entry, len(result or ""))
            entry.expires = now + keep
            heapq.heappush(self._expiries, (entry.expires, key))
        return True

    async def note(self, key: str, name: str, value: str, *, holder: str) -> bool:
        """As the contract says."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != holder or entry.standing is not EntryState.RUNNING:
                return False
            before = entry.notes.get(name)
            self._count(entry, len(value) + (len(name) if before is None else -len(before)))
            entry.notes[name] = value
        return True

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """As the contract says."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            entry = self._entries.get(key)
            if entry is not None and item in entry.notes:
                return True
            if entry is None:
                self._require_room(account)
                entry = self._entries[key] = _LedgerEntry("", "", None, now, now + keep, account=account)
                self._count(entry, entry.size)
            if len(entry.notes) >= most:
                return False
            entry.notes[item] = ""
            self._count(entry, len(item))
            entry.expires = now + keep
            heapq.heappush(self._expiries, (entry.expires, key))
        return True

    async def release(self, key: str, *, holder: str) -> None:
        """As the contract says."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != holder or entry.standing is not EntryState.RUNNING:
                return
            if entry.notes:
                entry.standing = None
            else:
                self._drop(key)

    async def wait(self, key: str, *, patience: float) -> Claim | None:
        """As the contract says."""

        async def look() -> Claim | None:
            now = self._clock()
            with self._lock:
                self._forget(now)
                entry = self._entries.get(key)
                return _seen(entry, now) if entry is not None else None

        return await self._waiting.wait(key, look, patience=patience)

    async def aclose(self) -> None:
        """There is nothing to let go of."""

    def _forget(self, now: float) -> None:
        if len(self._expiries) > _STALE + 4 * len(self._entries):
            # Most are of what was taken back.
            self._expiries = [(entry.expires, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiries)
        while self._expiries and self._expiries[0][0] <= now:
            _, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            if entry is not None and entry.expires <= now:
                self._drop(key)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._count(entry, -entry.size)

    def _count(self, entry: _LedgerEntry, change: int) -> None:
        self._bytes += change
        if entry.account is not None:
            held = self._held[entry.account] = self._held.get(entry.account, 0) + change
            if not held:
                del self._held[entry.account]

    def _require_room(self, account: str | None) -> None:
        if self._bytes >= self._max_bytes:
            raise LedgerDown(
                f"the ledger in memory is full, with {len(self._entries)} calls of about {self._bytes} bytes that may "
                "still be sent again; give the server a SqliteLedger or a RedisLedger, its tools a shorter max_age, "
                "or MemoryLedger(max_bytes=...) more room"
            )
        held = self._held.get(account, 0) if account is not None else 0
        if held >= self._max_bytes - self._bytes:
            raise LedgerDown(
                f"the ledger in memory has no more room for one caller (for one tool, where callers are not "
                f"authenticated): it holds about {held} of {self._max_bytes} bytes, and what is free is for others; "
                "give the server a SqliteLedger or a RedisLedger, its tools a shorter max_age, or "
                "MemoryLedger(max_bytes=...) more room"
            )


def _seen(entry: _LedgerEntry, now: float) -> Claim | None:
    if entry.standing is None:
        return None
    lapsed = entry.standing is EntryState.RUNNING and entry.lapses <= now
    if lapsed and entry.tentative:
        return None
    return Claim(EntryState.UNKNOWN if lapsed else entry.standing, entry.terms, entry.result)
