"""Provide the contract of ledgers: the operations on entries, and their answers.

A ledger has one entry for each call whose body must run once. The entry names the leg that has the claim, or has the
result of the body.
`specs/machine.md` has the states of an entry. Each operation is atomic, also between processes, and reads the
ledger's own clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Protocol, runtime_checkable

from roundtrip.ledger.machines import EntryState


class Reach(IntEnum):
    """Set of processes that a ledger serves."""

    PROCESS = 1
    MACHINE = 2
    FLEET = 3


class ClaimStatus(Enum):
    """Result of a claim: granted, or the state of the entry as legs other than its holder see it."""

    GRANTED = "granted"
    RUNNING = "running"
    """Another leg has the claim."""
    SETTLED = "settled"
    """The body has run, and the claim has its result."""
    UNKNOWN = "unknown"
    """A body has begun, and its outcome is not known."""


STATUS_OF: Final[Mapping[EntryState, ClaimStatus]] = {
    EntryState.HELD: ClaimStatus.RUNNING,
    EntryState.RUNNING: ClaimStatus.RUNNING,
    EntryState.LAPSED: ClaimStatus.UNKNOWN,
    EntryState.SETTLED: ClaimStatus.SETTLED,
    EntryState.UNKNOWN: ClaimStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """Answer of a ledger to a claim."""

    status: ClaimStatus
    answers_digest: str = ""
    """The digest that the holder claimed the call with."""
    result: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The notes of earlier holders, if the claim was granted."""
    epoch: int = field(default=0, compare=False)
    """The number of a granted claim, greater than those of all earlier ones. Every write of the holder needs it."""
    lease: float = field(default=math.inf, compare=False)
    """Seconds until the lease of another holder ends."""


class LedgerDown(Exception):
    """The ledger cannot be reached or written; the text says which one and why. The operation may have happened."""


@runtime_checkable
class Ledger(Protocol):
    """Store of claims and results. All of its methods raise `LedgerDown` within a bounded time.

    `renew`, `settle` and `note` return False, and change nothing, unless holder and epoch are those of the entry and
    the state permits it. So a holder that was paused past its lease cannot overwrite its successor.

    For `claim` and `wait`, a lease has ended when its time has passed, and also if `lease.is_buried` returns True for
    its holder: then the process is certainly dead.
    """

    @property
    def reach(self) -> Reach:
        """Return the set of processes that the ledger serves."""
        ...

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
        """Claim an entry that is free. A holder may claim its entry again, and keeps its epoch.

        Args:
            key: The call.
            answers_digest: A digest of the answers that the body runs with; other answers need another result.
            holder: A random name of the leg.
            lease: Seconds until the holder counts as dead, unless it renews.
            keep: Seconds until the ledger may forget the entry.
            rerun: Claim the entry of a body whose outcome is unknown, too.
            tentative: Claim the entry before the body begins. When the lease of such a claim ends, the entry is free.
                So the holder must claim again, without `tentative`, right before the body begins. A tentative claim
                that arrives after that changes nothing.
            account: The owner of the entry. A ledger with little room keeps an account from using the room of others.
        """
        ...

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Extend the lease. A holder whose lease has ended gets it back if no other leg has claimed the call."""
        ...

    async def settle(self, key: str, *, holder: str, epoch: int, result: str | None, keep: float) -> bool:
        """Record the result, or None for an outcome that will never be known. Repeating it returns True."""
        ...

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Note a value for the next holder."""
        ...

    async def release(self, key: str, *, holder: str, epoch: int | None = None) -> None:
        """Release a claim. The notes stay.

        Args:
            key: The call.
            holder: As for `claim`.
            epoch: The epoch of the claim; None for any, if the answer to the claim was lost.
        """
        ...

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Count an item, and return True if it is one of the first `most` different ones of its key.

        Counting an item again changes nothing, and returns the same.

        Args:
            key: A name that no claim has.
            item: The item, in ASCII.
            most: The number of different items to count.
            keep: Seconds until the ledger may forget the items, from the last one on.
            account: As for `claim`.
        """
        ...

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Return the state of an entry once no leg has the claim, or after `patience` seconds; None if it is free.

        Waiting needs no polling: the ledger announces every release and every result. A ledger may also look at the
        entry when a lease ends, and from time to time in case an announcement was lost.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files. The next operation opens them again."""
        ...
