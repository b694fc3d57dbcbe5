"""The ledger contract in Python: the rules for one entry, independent of storage and clock.

`MemoryLedger`, `SqliteLedger` and `PostgresLedger` store these entries. `RedisLedger` implements the same rules in Lua.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from roundtrip.ledger.contract import STATUS_OF, ClaimAnswer, ClaimStatus, ListedEntry
from roundtrip.ledger.lease import is_buried
from roundtrip.ledger.machines import ENTRY_MACHINE, EntryEvent, EntryState
from roundtrip.ledger.waiting import Waiting

T = TypeVar("T")

_ENTRY_BYTES: Final = 1024
"""Estimated size of an entry without its result and notes."""


@dataclass(slots=True)
class LedgerEntry:
    """State of one call in a ledger. Only transitions of `ENTRY_MACHINE` change it."""

    state: EntryState = EntryState.FREE
    holder: str = ""
    epoch: int = 0
    answers_digest: str = ""
    lapses: float = 0.0
    expires: float = 0.0
    result: str | None = None
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """Noted values, keyed by name. If `count` uses the entry, the names are the counted items."""
    account: str | None = None

    @property
    def size(self) -> int:
        """Return the entry's approximate size in bytes. Its text is ASCII, so each character is one byte."""
        return _ENTRY_BYTES + len(self.result or "") + sum(len(name) + len(text) for name, text in self.notes.items())

    def advance(self, now: float) -> None:
        """End the lease if its time has passed or the holder's process is dead. A decline outlives the process."""
        if self.lapses <= now or (self.state is not EntryState.DECLINED and is_buried(self.holder)):
            self.apply(EntryEvent.LAPSE)

    def write(self, event: EntryEvent, *, holder: str, epoch: int | None) -> bool:
        """Apply a holder's event. Return False and change nothing if another leg has the claim."""
        return self.holder == holder and epoch in (None, self.epoch) and self.apply(event)

    def seen(self, now: float) -> ClaimAnswer | None:
        """Return the entry as other legs see it, or None if it is free."""
        status = STATUS_OF.get(self.state)
        if status is None:
            return None
        lease = self.lapses - now if status in (ClaimStatus.RUNNING, ClaimStatus.DECLINED) else math.inf
        return ClaimAnswer(status, self.answers_digest, self.result, epoch=self.epoch, lease=lease)

    def conflict(self, has_ended: bool) -> ClaimAnswer:
        """Return the entry as a claim with another digest sees it."""
        result, notes = (self.result, dict(self.notes)) if has_ended else (None, {})
        return ClaimAnswer(ClaimStatus.CONFLICT, self.answers_digest, result, notes, self.epoch)

    def listed(self, key: str) -> ListedEntry:
        """Return the entry in the form of `ListsEntries`."""
        return ListedEntry(key, self.answers_digest, self.epoch, self.result, dict(self.notes))

    def apply(self, event: EntryEvent) -> bool:
        """Apply an event. Return False and change nothing if the state machine has no matching transition."""
        target = ENTRY_MACHINE.targets.get((self.state, event))
        if target is None:
            return False
        self.state = target
        return True


def settling_event(result: str | None, declined_for: float | None) -> EntryEvent:
    """Return the event that `settle` applies."""
    if declined_for is not None:
        return EntryEvent.DECLINE
    return EntryEvent.LOSE if result is None else EntryEvent.SETTLE


class EntryLedger(ABC):
    """Base class for ledgers that change one entry at a time, atomically."""

    _waiting: Waiting

    @abstractmethod
    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        """Call a function with an entry and the current time, and store the changed entry.

        The function receives a new entry if the ledger has no entry for the key.

        Args:
            key: The entry's key.
            work: The function. It may add and change notes but must not remove any.
            with_notes: True if the function reads the notes. Otherwise the entry may be loaded without its notes.

        Raises:
            LedgerDown: The ledger is full or cannot be used.
        """

    def _next_epoch(self, now: float) -> int:
        """Return an epoch that is greater than the epochs of all forgotten entries."""
        return int(now * 1_000_000)

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
        is_bound: bool = False,
        notes: Mapping[str, str] | None = None,
        voids: int | None = None,
    ) -> ClaimAnswer:
        """Implement `Ledger.claim`."""

        def claim(entry: LedgerEntry, now: float) -> ClaimAnswer:
            has_digest = entry.state is not EntryState.FREE or any(entry.notes.values())
            if is_bound and has_digest and entry.answers_digest != answers_digest:
                has_ended = entry.state in (EntryState.FREE, EntryState.SETTLED)
                if not has_ended or entry.epoch != voids:
                    return entry.conflict(has_ended)
                entry.notes = dict.fromkeys(entry.notes, "")
            if entry.epoch == voids:
                entry.apply(EntryEvent.VOID)
            # The holder's body began before the lease lapsed, so apply `START` even if the claim is tentative.
            has_begun = rerun and entry.state is EntryState.LAPSED and entry.holder == holder
            if rerun:
                entry.apply(EntryEvent.REOPEN)
            is_free = entry.state is EntryState.FREE
            event = EntryEvent.HOLD if tentative and not has_begun else EntryEvent.START
            if not (is_free or entry.holder == holder) or not entry.apply(event):
                return entry.seen(now) or ClaimAnswer(ClaimStatus.UNKNOWN)
            if is_free:
                entry.holder, entry.result = holder, None
                entry.epoch = max(entry.epoch + 1, self._next_epoch(now))
            entry.answers_digest, entry.account = answers_digest, account
            entry.lapses, entry.expires = now + lease, now + keep
            entry.notes.update(notes or {})
            return ClaimAnswer(ClaimStatus.GRANTED, answers_digest, notes=dict(entry.notes), epoch=entry.epoch)

        return await self._change(key, claim, with_notes=True)

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Implement `Ledger.renew`."""

        def renew(entry: LedgerEntry, now: float) -> bool:
            written = entry.write(EntryEvent.RENEW, holder=holder, epoch=epoch)
            if written:
                entry.lapses = now + lease
            return written

        return await self._change(key, renew)

    async def settle(
        self,
        key: str,
        *,
        holder: str,
        epoch: int,
        result: str | None,
        keep: float,
        declined_for: float | None = None,
    ) -> bool:
        """Implement `Ledger.settle`."""
        event = settling_event(result, declined_for)

        def settle(entry: LedgerEntry, now: float) -> bool:
            is_another = entry.state in (EntryState.SETTLED, EntryState.DECLINED) and result != entry.result
            written = not is_another and entry.write(event, holder=holder, epoch=epoch)
            if written:
                entry.result, entry.expires = result, now + keep
                if declined_for is not None:
                    entry.lapses = now + declined_for
            return written

        settled = await self._change(key, settle)
        self._waiting.wake(key)
        return settled

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Implement `Ledger.note`."""

        def note(entry: LedgerEntry, _now: float) -> bool:
            written = entry.write(EntryEvent.NOTE, holder=holder, epoch=epoch)
            if written:
                entry.notes[name] = value
            return written

        return await self._change(key, note)

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Implement `Ledger.count`."""

        def count(entry: LedgerEntry, now: float) -> bool:
            if item not in entry.notes and len(entry.notes) < most:
                entry.notes[item], entry.expires, entry.account = "", now + keep, account
            return item in entry.notes

        return await self._change(key, count, with_notes=True)

    async def release(
        self, key: str, *, holder: str, epoch: int | None = None, notes: Mapping[str, str] | None = None
    ) -> None:
        """Implement `Ledger.release`."""

        def release(entry: LedgerEntry, _now: float) -> None:
            if entry.write(EntryEvent.RELEASE, holder=holder, epoch=epoch):
                entry.notes.update(notes or {})

        await self._change(key, release)
        self._waiting.wake(key)

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Implement `Ledger.wait`."""
        return await self._waiting.wait(key, lambda: self._look(key), patience=patience)

    async def rewrite(self, seen: ListedEntry, *, result: str | None, notes: Mapping[str, str]) -> bool:
        """Implement `ListsEntries.rewrite`."""

        def rewrite(entry: LedgerEntry, _now: float) -> bool:
            is_held = STATUS_OF.get(entry.state) is ClaimStatus.RUNNING
            is_unchanged = not is_held and entry.listed(seen.key) == seen
            if is_unchanged:
                entry.result = result
                entry.notes.update(notes)
            return is_unchanged

        return await self._change(seen.key, rewrite, with_notes=True)

    async def _look(self, key: str) -> ClaimAnswer | None:
        return await self._change(key, LedgerEntry.seen)
