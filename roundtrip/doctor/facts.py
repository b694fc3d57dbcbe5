"""Observations of a service from outside: its places, the instances behind them, and calls between instances.

The reports of instances are untrusted, and are parsed by a model that bounds every value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_MAX_WORD_CHARS: Final = 200
_MAX_CLOCK: Final = 1e11
"""Seconds since 1970; no clock shows more."""
_MAX_WORKERS: Final = 1024

_Word = Annotated[str, StringConstraints(max_length=_MAX_WORD_CHARS)]
_Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class TaskFacts(BaseModel):
    """The report of an instance on its store of tasks."""

    model_config = ConfigDict(frozen=True)

    down: bool = False
    """True if the store did not answer."""
    states: Annotated[dict[_Word, int], Field(max_length=20)] = {}
    """The number of tasks in each state."""
    keys: Annotated[dict[_Word, int], Field(max_length=200)] = {}
    """The number of tasks under each key, by its hint; "" for tasks that are not encrypted."""
    own_keys: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """The hints of the keys with which the instance reads tasks, the one that encrypts first."""
    overdue: Annotated[int, Field(ge=0)] = 0
    """The number of tasks that have been due for a minute."""
    is_whole: bool = True
    """False if the store has more tasks than were counted."""
    runs: bool
    """True if the instance runs tasks."""


class Facts(BaseModel):
    """The report of an instance."""

    model_config = ConfigDict(frozen=True)

    instance: _Id
    roundtrip: _Word
    mcp: _Word
    python: _Word
    name: _Word
    keys: Annotated[tuple[_Word, ...], Field(max_length=64)]
    """The hints of its keys, the signing key first; empty if an SDK policy brought its own codec."""
    own_key: bool
    audience: Annotated[str, StringConstraints(max_length=2000)]
    build: _Word
    """A digest of all tools, to compare."""
    builds: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """The builds of its tools, as traces and tokens name them; earlier versions report none."""
    tools: Annotated[dict[_Word, _Word], Field(max_length=5000)]
    ledger: _Word
    reach: Literal["process", "machine", "fleet"]
    exactly_once: bool
    tasks: TaskFacts | None = None
    """None if no tool runs as a task."""
    caller: _Word | None
    """A digest of the principal that the instance sees in the doctor's requests."""
    transport: _Word | None = None
    """The way of requests over HTTP on 2026-07-28, and the reason for it; earlier versions report none."""
    group: _Word | None = None
    """An id that all workers of one `roundtrip serve` share."""
    workers: Annotated[int, Field(ge=1, le=_MAX_WORKERS)] | None = None
    """The number of those workers."""

    @property
    def needs_ledger(self) -> bool:
        """Return True if instances must share a ledger."""
        return self.exactly_once or self.tasks is not None


class Said(Facts):
    """A report, with the values that belong to one answer only."""

    clock: Annotated[float, Field(ge=0, le=_MAX_CLOCK)]
    mark: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    marked: Literal["claimed", "busy", "down"] | None = None
    saw: _Id | None = None
    looked: Literal["seen", "absent", "down"] | None = None


class Began(BaseModel):
    """The result of a probing call: the instances that began and ended it."""

    instance: _Id
    began: _Id


class Look(StrEnum):
    """The result of looking in an instance's ledger for the mark of another instance."""

    SEEN = "seen"
    ABSENT = "absent"
    DOWN = "down"


@dataclass(slots=True)
class ProbedInstance:
    """One process, by its report."""

    facts: Facts
    places: set[int]
    """The places that led to it."""
    offset: float
    """Seconds by which its clock is ahead of this machine's."""
    uncertainty: float
    """The largest error of the offset, in seconds."""
    look: Look | None = None
    """None if no mark was set, or no tool runs exactly once."""


class Trouble(StrEnum):
    """The reason that a place could not be probed."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    NOT_MCP = "not-mcp"
    OLD = "old"
    """It speaks no revision that returns questions."""
    NO_PROBE = "no-probe"
    STRANGE = "strange"
    """It has a tool with the probe's name, which does not answer as the probe does."""


class Live(StrEnum):
    """The result of asking a question over a connection of an older revision."""

    YES = "yes"
    NO = "no"
    UNTRIED = "untried"


class Reached(StrEnum):
    """The end of a probing call."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(slots=True)
class Place:
    """One address of the service."""

    url: str
    trouble: Trouble | None = None
    detail: str = ""
    """The server's message, or the error."""
    revisions: Sequence[str] = ()
    """The protocol revisions that it names."""
    older_clients: Live = Live.UNTRIED
    older_clients_detail: str = ""
    probes: int = 0
    """Requests sent to find instances."""
    quiet: int = 0
    """The last requests in a row that found no new instance."""
    failures: list[str] = field(default_factory=list[str])
    """The errors of failed requests."""
    ready: int | None = None
    """The HTTP status of its readiness route; None without one."""


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """A probing call: its first leg went to one place, the second to another or the same."""

    start: int
    end: int
    reached: Reached
    began: str | None = None
    """The instance that served the first leg."""
    ended: str | None = None
    """The instance that served the last leg, if the call was done."""
    detail: str = ""


@dataclass(slots=True)
class Observed:
    """All observations of a service."""

    places: list[Place]
    instances: dict[str, ProbedInstance] = field(default_factory=dict[str, ProbedInstance])
    """By their ids, in the order of discovery."""
    journeys: list[ProbedCall] = field(default_factory=list[ProbedCall])
    expected: int | None = None
    """The number of instances that the user expects."""
    marker: str | None = None
    """The instance that set the mark in its ledger."""

    @property
    def announced(self) -> int:
        """Return the number of instances that must exist, by the numbers of workers that the reports give."""
        groups: dict[str, list[ProbedInstance]] = {}
        for name, instance in self.instances.items():
            groups.setdefault(instance.facts.group or f"alone {name}", []).append(instance)
        return sum(max(len(some), *(one.facts.workers or 1 for one in some)) for some in groups.values())

    @property
    def sought(self) -> int:
        """Return the number of instances to look for."""
        return max(self.announced, self.expected or 0)

    def label(self, instance: str | None) -> str:
        """Return the short name of an instance in this report."""
        ids = list(self.instances)
        return f"#{ids.index(instance) + 1}" if instance is not None and instance in ids else "an instance not met"

    def labels(self, instances: Iterable[str]) -> str:
        """List several instances: `#1, #2 and #4`."""
        names = [self.label(instance) for instance in instances]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"

    def behind(self, place: int) -> list[str]:
        """Return the instances that a place led to."""
        return [instance.facts.instance for instance in self.instances.values() if place in instance.places]
