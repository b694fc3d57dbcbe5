"""What a ledger keeps, and the few things that are asked of it.

A ledger has one entry for each thing that must not be done twice: who does it, or what came of it. Everything that
changes an entry is atomic, also between processes, and time is the ledger's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol, runtime_checkable

__all__ = ["Claim", "EntryState", "Ledger", "LedgerDown", "Reach"]


class Reach(IntEnum):
    """Between which processes a ledger holds."""

    PROCESS = 1
    MACHINE = 2
    FLEET = 3


class EntryState(Enum):
    """How it stands with an entry."""

    GRANTED = "granted"
    """It is the asker's: nobody else has begun."""
    RUNNING = "running"
    """Somebody is at it."""
    SETTLED = "settled"
    """It has been done, and the result is here."""
    UNKNOWN = "unknown"
    """Somebody has begun, and will never tell what came of it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a ledger answers to somebody who wants to begin."""

    standing: EntryState
    terms: str = ""
    """With what it was claimed by whoever began."""
    result: str | None = None
    """What came of it, where it has been settled."""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where it was granted, what earlier holders have noted down."""


class LedgerDown(Exception):
    """The ledger cannot be reached, or cannot write; the text says which one and why. Nothing was begun."""


@runtime_checkable
class Ledger(Protocol):
    """Keeps what has been begun and what came of it. All of its methods raise `LedgerDown` within a bounded time."""

    @property
    def reach(self) -> Reach:
        """Between which processes it holds."""
        ...

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
        """Begin, unless somebody has.

        Args:
            key: What is to be done once.
            terms: With what it is to be done: whoever comes later with other terms wants something else.
            holder: Who asks. To ask again is to be granted again.
            lease: Seconds after which the holder counts as dead, unless it renews.
            keep: Seconds after which the entry may be forgotten.
            although_unknown: Whether to begin anew where somebody has begun and died.
            tentative: Whether to keep others out, but not begin yet. A holder that dies so has done nothing, and leaves
                the entry as if it had taken its claim back. Before it begins it claims once more, as only then is it
                certain that nobody has taken its place. Of a holder that has begun it is a claim that arrives late, and
                undoes nothing.
            account: Whose entry it is, for a ledger that holds little: no account may take what others need.
        """
        ...

    async def renew(self, key: str, *, holder: str, lease: float) -> bool:
        """Say that the holder is alive; whether the entry is still its own."""
        ...

    async def settle(self, key: str, *, holder: str, result: str | None, keep: float) -> bool:
        """Put down what came of it, None for what nobody will ever know; whether the entry was still the holder's.

        To put the same down again changes nothing, and is true.
        """
        ...

    async def note(self, key: str, name: str, value: str, *, holder: str) -> bool:
        """Note something down for whoever claims it next; whether the entry was still the holder's."""
        ...

    async def release(self, key: str, *, holder: str) -> None:
        """Take a claim back, as it was not done after all. Notes stay."""
        ...

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Count an item, and return True if it is one of the first `most` different ones of its key.

        To count the same item again changes nothing, and has the same answer.

        Args:
            key: What is counted; no claim has this key.
            item: One of its items, in ASCII.
            most: How many different items there may be.
            keep: Seconds after which the items may be forgotten, counted from the last one.
            account: As for `claim`.
        """
        ...

    async def wait(self, key: str, *, patience: float) -> Claim | None:
        """How it stands when nobody is at it any more, or when the patience ends; None where there is no entry."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files. They are opened again when they are needed."""
        ...
