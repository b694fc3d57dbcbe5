"""The ledger contract: operations on entries, and their results.

A ledger has one entry for each call whose body must run once. The entry names the leg that has the claim, or contains
the body's result. `specs/machine.md` lists the entry states.

Each operation is atomic, even across processes, and reads the ledger's own clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from roundtrip.ledger.machines import EntryState

INTENT_PREFIX: Final = "intent/"
"""Begins the keys of intents. No call id contains a slash."""


class Reach(IntEnum):
    """The processes that can share a ledger: only one, all on one machine, or a whole fleet."""

    PROCESS = 1
    MACHINE = 2
    FLEET = 3


class ClaimStatus(Enum):
    """The result of a claim: it was granted, or the entry's state prevented it."""

    GRANTED = "granted"
    RUNNING = "running"
    """Another leg has the claim."""
    SETTLED = "settled"
    """The body has run, and the ledger's answer contains the result."""
    DECLINED = "declined"
    """The user declined, and the ledger's answer contains what the holder recorded."""
    UNKNOWN = "unknown"
    """The body began, and its outcome is unknown."""
    CONFLICT = "conflict"
    """An earlier claim had another digest. The answer contains this digest, and the epoch. If the entry is free or
    settled, the answer also contains the result or the lapsed decline, and the notes.
    """


STATUS_OF: Final[Mapping[EntryState, ClaimStatus]] = {
    EntryState.HELD: ClaimStatus.RUNNING,
    EntryState.RUNNING: ClaimStatus.RUNNING,
    EntryState.LAPSED: ClaimStatus.UNKNOWN,
    EntryState.SETTLED: ClaimStatus.SETTLED,
    EntryState.DECLINED: ClaimStatus.DECLINED,
    EntryState.UNKNOWN: ClaimStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A ledger's answer to a claim."""

    status: ClaimStatus
    answers_digest: str = ""
    """The `answers_digest` that the holder passed when it claimed the call."""
    result: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The values that earlier holders noted; empty unless the claim was granted, or conflicts with a free or settled
    entry.
    """
    epoch: int = field(default=0, compare=False)
    """The number of the claim that was granted, or of the claim that the answer describes. Each new claim gets a
    greater number. The holder passes its number with every write.
    """
    lease: float = field(default=math.inf, compare=False)
    """The seconds until the lease ends, if another leg has the claim, or until a decline lapses."""


class LedgerDown(Exception):
    """The ledger cannot be reached or written to. The message names the ledger and the cause. The operation may still
    have taken effect.
    """


@runtime_checkable
class Ledger(Protocol):
    """A store for claims and results. Every method raises `LedgerDown` within a bounded time if the ledger fails.

    `renew`, `settle` and `note` return False and change nothing if the holder or epoch does not match the entry, or if
    the entry's state forbids the change. So a holder that was paused until its lease ended cannot overwrite what its
    successor wrote.

    `claim` and `wait` treat a lease as ended when its time has passed, or when `lease.is_buried` reports that the
    holder's process is dead. A decline ends only when its time has passed.
    """

    @property
    def reach(self) -> Reach:
        """Return which processes can share the ledger."""
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
        is_bound: bool = False,
        notes: Mapping[str, str] | None = None,
        voids: int | None = None,
    ) -> ClaimAnswer:
        """Claim a free entry. If the holder claims its entry again, the epoch stays the same.

        Args:
            key: The call.
            answers_digest: Digest of the answers with which the body runs. A result is valid only for these answers.
            holder: The leg's random name.
            lease: Seconds until the holder counts as dead unless it renews its lease.
            keep: Seconds until the ledger may forget the entry.
            rerun: Also claim the entry if its body began and the outcome is unknown.
            tentative: Claim the entry before the body begins. When the lease of a tentative claim ends, the entry is
                free again. So the holder must claim the entry again, without `tentative`, right before the body begins.
                A tentative claim that arrives after the body began changes nothing.
            account: The entry's owner. A ledger with a size limit does not let one account fill it.
            is_bound: If the entry has another `answers_digest`, answer `CONFLICT` and change nothing. A free entry has
                no digest if all its notes are empty.
            notes: Values to note if the claim is granted. The answer's notes include them.
            voids: If the entry is settled and has this epoch, drop its result first, and keep its notes. If the claim
                is bound, and the entry is free or settled with this epoch and another digest, drop the result and the
                digest first, and empty all notes.
        """
        ...

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Extend the lease. If the lease has ended and no other leg has claimed the call, the holder gets the lease
        back.
        """
        ...

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
        """Record the body's result, or None if its outcome will never be known.

        If the holder records the same result again, return True.

        Args:
            key: The call.
            holder: As for `claim`.
            epoch: The claim's epoch.
            result: The text that later claims get.
            keep: As for `claim`.
            declined_for: If given, record that the user declined. The entry is free again after this many seconds.
        """
        ...

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Store a named value for the next holder."""
        ...

    async def release(
        self, key: str, *, holder: str, epoch: int | None = None, notes: Mapping[str, str] | None = None
    ) -> None:
        """Release a claim, and keep its notes.

        Args:
            key: The call.
            holder: As for `claim`.
            epoch: The claim's epoch, or None if the holder never received it. None releases the claim whatever its
                epoch is.
            notes: Values to note if the holder may release the claim.
        """
        ...

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Count an item under a key. Return True if the item is among the first `most` distinct items of that key.

        Counting the same item again changes nothing and returns the same result.

        Args:
            key: A name that no claim uses.
            item: The item, in ASCII.
            most: The maximum number of distinct items.
            keep: The ledger may forget all items this many seconds after the last new item.
            account: As for `claim`.
        """
        ...

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Wait until no leg has the claim, but at most `patience` seconds. Return the entry's state, or None if the
        entry is free.

        Waiting needs no polling: the ledger announces every release and every result. A ledger may also read the entry
        when a lease ends, and from time to time in case an announcement was lost.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files; the next operation opens them again."""
        ...


class ListedEntry(NamedTuple):
    """The texts of one entry, as a ledger listed them."""

    key: str
    answers_digest: str
    epoch: int
    result: str | None
    notes: Mapping[str, str]


@runtime_checkable
class ListsEntries(Protocol):
    """Ledger that can also list its entries and replace their texts. A ledger need not have these methods."""

    async def list_entries(self, prefix: str, *, after: str = "", limit: int) -> tuple[Sequence[ListedEntry], str]:
        """Return one page of the entries whose keys begin with a prefix, and the place of the next page.

        Every entry that exists all the time is on some page. A page may be empty, and an entry may be on two pages.

        Args:
            prefix: ASCII text.
            after: The place that the previous page returned. The last page returns an empty text.
            limit: How many entries to read, about.
        """
        ...

    async def rewrite(self, seen: ListedEntry, *, result: str | None, notes: Mapping[str, str]) -> bool:
        """Replace an entry's result and some of its notes. Return False and change nothing if the entry has changed
        since it was listed, or if a leg has the claim.
        """
        ...
