"""Provide the entry of a ledger: the operations of the contract, without storage and clock.

`MemoryLedger` and `SqliteLedger` keep such entries. `RedisLedger` does the same in Lua.
"""

from dataclasses import dataclass

from roundtrip.ledger.contract import STATUS_OF, ClaimAnswer, ClaimStatus
from roundtrip.machine.table import ENTRY_MACHINE, EntryEvent, EntryState

__all__ = ["LedgerEntry"]


@dataclass(slots=True)
class LedgerEntry:
    """State of one call in a ledger, moved by `ENTRY_MACHINE` alone."""

    state: EntryState = EntryState.FREE
    holder: str = ""
    epoch: int = 0
    answers_digest: str = ""
    lapses: float = 0.0
    expires: float = 0.0
    result: str | None = None

    def advance(self, now: float) -> None:
        """Let the lease end, if its time has come."""
        if self.lapses <= now:
            self._apply(EntryEvent.LAPSE)

    def claim(
        self,
        answers_digest: str,
        *,
        holder: str,
        lapses: float,
        expires: float,
        rerun: bool,
        tentative: bool,
        next_epoch: int,
    ) -> bool:
        """Grant a claim, or change nothing and return False."""
        if rerun:
            # A holder whose lease has ended has still begun, even if it claims tentatively.
            tentative = tentative and not (self.state is EntryState.LAPSED and self.holder == holder)
            self._apply(EntryEvent.REOPEN)
        if self.state is EntryState.FREE:
            self.holder, self.result = holder, None
            self.epoch = max(self.epoch + 1, next_epoch)
        elif self.holder != holder:
            return False
        if not self._apply(EntryEvent.HOLD if tentative else EntryEvent.START):
            return False
        self.answers_digest, self.lapses, self.expires = answers_digest, lapses, expires
        return True

    def write(self, event: EntryEvent, *, holder: str, epoch: int | None) -> bool:
        """Apply an event of the holder; False, and no change, if another leg has the claim."""
        return self.holder == holder and epoch in (None, self.epoch) and self._apply(event)

    def settle(self, result: str | None, *, holder: str, epoch: int, expires: float) -> bool:
        """Record the result of the holder's body, or that it will never be known."""
        if self.state is EntryState.SETTLED and result != self.result:
            return False
        written = self.write(EntryEvent.LOSE if result is None else EntryEvent.SETTLE, holder=holder, epoch=epoch)
        if written:
            self.result, self.expires = result, expires
        return written

    def seen(self, now: float) -> ClaimAnswer | None:
        """Return the entry as others than the holder see it; None if it is free."""
        status = STATUS_OF.get(self.state)
        if status is None:
            return None
        if status is ClaimStatus.RUNNING:
            return ClaimAnswer(status, self.answers_digest, lease=self.lapses - now)
        return ClaimAnswer(status, self.answers_digest, self.result)

    def _apply(self, event: EntryEvent) -> bool:
        target = ENTRY_MACHINE.targets.get((self.state, event))
        if target is None:
            return False
        self.state = target
        return True
