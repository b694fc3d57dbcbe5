"""What is seen of a service from outside: places, the instances behind them, and calls that went from one to the next.

What instances say of themselves comes from outside, and is read by a model that bounds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = [
    "Began",
    "Facts",
    "Live",
    "Look",
    "Observed",
    "Place",
    "ProbedCall",
    "ProbedInstance",
    "Reached",
    "Said",
    "Trouble",
]

_WORD: Final = 200
_LAST: Final = 1e11
"""Seconds since 1970 that no clock shows."""
_MOST_WORKERS: Final = 1024
_INSTANCE: Final = r"^[0-9a-f]{12}$"

_Word = Annotated[str, StringConstraints(max_length=_WORD)]
_Id = Annotated[str, StringConstraints(pattern=_INSTANCE)]


class Facts(BaseModel):
    """What an instance says of itself."""

    model_config = ConfigDict(frozen=True)

    instance: _Id
    roundtrip: _Word
    mcp: _Word
    python: _Word
    name: _Word
    keys: Annotated[tuple[_Word, ...], Field(max_length=64)]
    """The hints of its keys, the one that signs first; none where an SDK policy brought its own codec."""
    own_key: bool
    audience: Annotated[str, StringConstraints(max_length=2000)]
    build: _Word
    """A digest of all tools, to compare."""
    builds: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """The builds of its tools, as traces and tokens name them; none from an instance of an earlier version."""
    tools: Annotated[dict[_Word, _Word], Field(max_length=5000)]
    ledger: _Word
    reach: Literal["process", "machine", "fleet"]
    exactly_once: bool
    caller: _Word | None
    """A digest of whom it takes the doctor for."""
    group: _Word | None = None
    """What it has in common with the other workers of one `roundtrip serve`."""
    workers: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] | None = None
    """How many workers those are."""


class Said(Facts):
    """The same, and what belongs to the one answer."""

    clock: Annotated[float, Field(ge=0, le=_LAST)]
    mark: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    marked: Literal["claimed", "busy", "down"] | None = None
    saw: _Id | None = None
    looked: Literal["seen", "absent", "down"] | None = None


class Began(BaseModel):
    """How a call ended that went from one instance to another."""

    instance: _Id
    began: _Id


class Look(StrEnum):
    """What an instance saw in its ledger of what another had put down in its own."""

    SEEN = "seen"
    ABSENT = "absent"
    DOWN = "down"


@dataclass(slots=True)
class ProbedInstance:
    """One process, by what it said."""

    facts: Facts
    places: set[int]
    """Behind which places it was met."""
    offset: float
    """How far its clock is ahead of this machine's, in seconds."""
    uncertainty: float
    """By how much that may be wrong."""
    look: Look | None = None
    """None where nobody has put anything down, or no tool runs exactly once."""


class Trouble(StrEnum):
    """Why a place could not be probed."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    NOT_MCP = "not-mcp"
    OLD = "old"
    """It speaks no revision on which questions are returned."""
    NO_PROBE = "no-probe"
    STRANGE = "strange"
    """It has something of the probe's name that is not the probe."""


class Live(StrEnum):
    """Whether clients of the older revisions can be asked."""

    YES = "yes"
    NO = "no"
    UNTRIED = "untried"


class Reached(StrEnum):
    """How a journey ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class Place:
    """One address, and what is behind it."""

    url: str
    trouble: Trouble | None = None
    detail: str = ""
    """What it said, or what failed."""
    revisions: Sequence[str] = ()
    """Of the protocol, as far as it names them."""
    live: Live = Live.UNTRIED
    live_detail: str = ""
    probes: int = 0
    """How many requests went out to look around."""
    quiet: int = 0
    """How many of them, at last, met no instance that had not been met."""
    failures: list[str] = field(default_factory=list[str])
    """What became of those that failed."""
    ready: int | None = None
    """The HTTP status of its readiness route; None where it has none."""


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """A call whose first leg went to one place, and whose second to another or the same."""

    start: int
    end: int
    reached: Reached
    began: str | None = None
    """The instance that served the first leg."""
    ended: str | None = None
    """The instance that served the last, where it did."""
    detail: str = ""


@dataclass(slots=True)
class Observed:
    """All that was seen."""

    places: list[Place]
    instances: dict[str, ProbedInstance] = field(default_factory=dict[str, ProbedInstance])
    """By their ids, in the order in which they were met."""
    journeys: list[ProbedCall] = field(default_factory=list[ProbedCall])
    expected: int | None = None
    """How many instances there should be, if somebody has said so."""
    marker: str | None = None
    """The instance that put something down in its ledger for the others to see."""

    @property
    def announced(self) -> int:
        """How many instances there are at least, by what those that were met say of their fellow workers."""
        groups: dict[str, list[ProbedInstance]] = {}
        for name, instance in self.instances.items():
            groups.setdefault(instance.facts.group or f"alone {name}", []).append(instance)
        return sum(max(len(some), *(one.facts.workers or 1 for one in some)) for some in groups.values())

    @property
    def sought(self) -> int:
        """How many instances are looked for."""
        return max(self.announced, self.expected or 0)

    def label(self, instance: str | None) -> str:
        """What an instance is called in this report."""
        ids = list(self.instances)
        return f"#{ids.index(instance) + 1}" if instance is not None and instance in ids else "an instance not met"

    def labels(self, instances: Iterable[str]) -> str:
        """Several of them: `#1, #2 and #4`."""
        names = [self.label(instance) for instance in instances]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"

    def behind(self, place: int) -> list[str]:
        """The instances that were met behind a place."""
        return [instance.facts.instance for instance in self.instances.values() if place in instance.places]
