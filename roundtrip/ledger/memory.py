"""Provide `MemoryLedger`, for a server that is one process."""

import heapq
import itertools
import threading
from dataclasses import dataclass, field
from typing import Final

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, LedgerDown, Reach
from roundtrip.ledger.entry import LedgerEntry
from roundtrip.ledger.waiting import Waiting
from roundtrip.machine.table import EntryEvent, EntryState
from roundtrip.system import SYSTEM, System

__all__ = ["MemoryLedger"]

_MAX_STALE_EXPIRIES: Final = 1024
_MAX_LEDGER_BYTES: Final = 256 * 1024 * 1024
_ENTRY_BYTES: Final = 1024
"""About the size of an entry without its result and its notes."""


@dataclass(slots=True)
class _StoredEntry(LedgerEntry):
    account: str | None = None
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """For a key of `count`, its items."""

    @property
    def size(self) -> int:
        """About the number of bytes of the entry; its texts are ASCII."""
        return _ENTRY_BYTES + len(self.result or "") + sum(len(name) + len(text) for name, text in self.notes.items())


class MemoryLedger:
    """Ledger in the memory of one process: the default of a server.

    Args:
        max_bytes: About the bytes it may hold. A full ledger grants no new claims until it may forget an entry: to
            forget one earlier would run its body twice. An account that holds as many bytes as are free gets no new
            claims either: one account alone gets half, two get a third each, and others always find room.
        system: The clock.
    """

    def __init__(self, *, max_bytes: int = _MAX_LEDGER_BYTES, system: System = SYSTEM) -> None:
        self._clock = system.monotonic
        self._max_bytes = max_bytes
        self._bytes = 0
        self._account_bytes: dict[str, int] = {}
        # A server may serve on several event loops.
        self._lock = threading.Lock()
        self._entries: dict[str, _StoredEntry] = {}
        self._epochs = itertools.count(1)
        self._waiting = Waiting()
        self._expiries: list[tuple[float, str]] = []

    @property
    def reach(self) -> Reach:
        """Implement `Ledger.reach`."""
        return Reach.PROCESS

    async def claim(
        self,
        key: str,
        answers_digest: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        rerun: bool = False,
        tentative: bool = False,
        account: str | None = None,
    ) -> ClaimAnswer:
        """Implement `Ledger.claim`."""
        with self._lock:
            now = self._clock()
            found = self._find(key, now)
            if found is None:
                self._require_room(account)
            entry = found or _StoredEntry()
            size = entry.size
            granted = entry.claim(
                answers_digest,
                holder=holder,
                lapses=now + lease,
                expires=now + keep,
                rerun=rerun,
                tentative=tentative,
                next_epoch=next(self._epochs),
            )
            seen = None if granted else entry.seen(now)
            if seen is not None:
                return seen
            if found is not None:
                self._resize(entry.account, -size)
            entry.account = account
            self._resize(account, entry.size)
            self._entries[key] = entry
            heapq.heappush(self._expiries, (entry.expires, key))
            return ClaimAnswer(ClaimStatus.GRANTED, answers_digest, notes=dict(entry.notes), epoch=entry.epoch)

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Implement `Ledger.renew`."""
        with self._lock:
            now = self._clock()
            entry = self._find(key, now)
            if entry is None or not entry.write(EntryEvent.RENEW, holder=holder, epoch=epoch):
                return False
            entry.lapses = now + lease
        return True

    async def settle(self, key: str, *, holder: str, epoch: int, result: str | None, keep: float) -> bool:
        """Implement `Ledger.settle`."""
        with self._lock:
            now = self._clock()
            entry = self._find(key, now)
            size = entry.size if entry is not None else 0
            if entry is None or not entry.settle(result, holder=holder, epoch=epoch, expires=now + keep):
                return False
            self._resize(entry.account, entry.size - size)
            heapq.heappush(self._expiries, (entry.expires, key))
        self._waiting.wake(key)
        return True

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Implement `Ledger.note`."""
        with self._lock:
            entry = self._find(key, self._clock())
            if entry is None or not entry.write(EntryEvent.NOTE, holder=holder, epoch=epoch):
                return False
            size = entry.size
            entry.notes[name] = value
            self._resize(entry.account, entry.size - size)
        return True

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Implement `Ledger.count`."""
        with self._lock:
            now = self._clock()
            entry = self._find(key, now)
            if entry is not None and item in entry.notes:
                return True
            if entry is None:
                self._require_room(account)
                entry = self._entries[key] = _StoredEntry(account=account, expires=now + keep)
                self._resize(account, entry.size)
            if len(entry.notes) >= most:
                return False
            entry.notes[item] = ""
            self._resize(account, len(item))
            entry.expires = now + keep
            heapq.heappush(self._expiries, (entry.expires, key))
        return True

    async def release(self, key: str, *, holder: str, epoch: int | None = None) -> None:
        """Implement `Ledger.release`."""
        with self._lock:
            entry = self._find(key, self._clock())
            if entry is None or not entry.write(EntryEvent.RELEASE, holder=holder, epoch=epoch):
                return
            if not entry.notes:
                self._drop(key)
        self._waiting.wake(key)

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Implement `Ledger.wait`."""

        async def look() -> ClaimAnswer | None:
            with self._lock:
                now = self._clock()
                entry = self._find(key, now)
                return entry.seen(now) if entry is not None else None

        return await self._waiting.wait(key, look, patience=patience)

    async def aclose(self) -> None:
        """Implement `Ledger.aclose`; there is nothing to close."""

    def _find(self, key: str, now: float) -> _StoredEntry | None:
        """Forget entries that have expired, and return that of a key as it is now."""
        if len(self._expiries) > _MAX_STALE_EXPIRIES + 4 * len(self._entries):
            # Most are of entries that were released.
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
        self._resize(entry.account, -entry.size)

    def _resize(self, account: str | None, change: int) -> None:
        self._bytes += change
        if account is not None:
            held = self._account_bytes[account] = self._account_bytes.get(account, 0) + change
            if not held:
                del self._account_bytes[account]

    def _require_room(self, account: str | None) -> None:
        if self._bytes >= self._max_bytes:
            raise LedgerDown(
                f"the ledger in memory is full, with {len(self._entries)} calls of about {self._bytes} bytes that may "
                "still be sent again; give the server a SqliteLedger or a RedisLedger, its tools a shorter max_age, "
                "or MemoryLedger(max_bytes=...) more room"
            )
        held = self._account_bytes.get(account, 0) if account is not None else 0
        if held >= self._max_bytes - self._bytes:
            raise LedgerDown(
                f"the ledger in memory has no more room for one caller (for one tool, where callers are not "
                f"authenticated): it holds about {held} of {self._max_bytes} bytes, and the rest is for others; "
                "give the server a SqliteLedger or a RedisLedger, its tools a shorter max_age, or "
                "MemoryLedger(max_bytes=...) more room"
            )
