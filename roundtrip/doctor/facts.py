"""The doctor's observations of a service from outside: its addresses, the instances behind them, and calls between
instances.

Instance reports are untrusted. The models that parse them limit every value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

_MAX_WORD_CHARS: Final = 200
_MAX_CLOCK: Final = 1e11
"""The latest time that a report may contain, in seconds since 1970."""
_MAX_WORKERS: Final = 1024

_Word = Annotated[str, StringConstraints(max_length=_MAX_WORD_CHARS)]
_Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class KeyFacts(BaseModel):
    """An instance's report on the keys that its ledger's contents need."""

    model_config = ConfigDict(frozen=True)

    down: bool = False
    """True if the ledger did not answer."""
    keys: Annotated[dict[_Word, int], Field(max_length=200)] = {}
    """Counts by key hint. The empty hint counts what is not encrypted."""
    own_keys: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """Hints for the keys that this instance can use to decrypt. It encrypts with the first key."""
    is_whole: bool = True
    """False if the instance counted only some of the contents."""

    @property
    def former_keys(self) -> list[str]:
        """Return the hints of the instance's former keys that are in use."""
        return [key for key in self.keys if key in self.own_keys[1:]]


class TaskFacts(KeyFacts):
    """An instance's report on its task store."""

    states: Annotated[dict[_Word, int], Field(max_length=20)] = {}
    """Task counts by state."""
    overdue: Annotated[int, Field(ge=0)] = 0
    """How many tasks are more than a minute overdue."""
    runs: bool
    """True if the instance runs tasks."""


class SoftwareFacts(BaseModel):
    """The versions of what an instance runs."""

    roundtrip: _Word
    mcp: _Word
    python: _Word

    @property
    def versions(self) -> str:
        """Return the versions in one line."""
        return f"roundtrip {self.roundtrip}, mcp {self.mcp}, Python {self.python}"


class Facts(SoftwareFacts):
    """An instance's report."""

    model_config = ConfigDict(frozen=True)

    instance: _Id
    name: _Word
    keys: Annotated[tuple[_Word, ...], Field(max_length=64)]
    """Key hints. The first hint is the signing key's. Empty if an SDK policy has a custom codec."""
    own_key: bool
    audience: Annotated[str, StringConstraints(max_length=2000)]
    build: _Word
    """A digest of all tools, by which instances can be compared."""
    builds: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """The builds of the tools, with the same names as in traces and tokens. Earlier versions of roundtrip do not report
    builds.
    """
    tools: Annotated[dict[_Word, _Word], Field(max_length=5000)]
    ledger: _Word
    reach: Literal["process", "machine", "fleet"]
    exactly_once: bool
    tasks: TaskFacts | None = None
    """None if no tool runs as a task."""
    intents: KeyFacts | None = None
    """The keys that results of tools with `once_per=` need. None if there is no such tool."""
    channels: Annotated[tuple[_Word, ...], Field(max_length=64)] = ()
    """How the instance's questions reach users. Earlier roundtrip versions do not report this."""
    caller: _Word | None
    """A digest of the principal that the instance sees in the doctor's requests."""
    transport: _Word | None = None
    """How the instance serves HTTP requests on protocol revision 2026-07-28, and why. None if the instance runs an
    earlier version of roundtrip, which does not report this.
    """
    group: _Word | None = None
    """An ID that is the same for all workers under one `roundtrip serve`."""
    workers: Annotated[int, Field(ge=1, le=_MAX_WORKERS)] | None = None
    """How many workers the group has."""

    @property
    def needs_ledger(self) -> bool:
        """Return True if instances must share a ledger."""
        return self.exactly_once or self.tasks is not None


class InstanceReport(Facts):
    """An instance's report, and additional values that apply to only one response."""

    clock: Annotated[float, Field(ge=0, le=_MAX_CLOCK)]
    mark: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    marked: Literal["claimed", "busy", "down"] | None = None
    saw: _Id | None = None
    looked: Literal["seen", "absent", "down"] | None = None


class ProbeCallResult(BaseModel):
    """A probe call's result. It names the instances that served the first leg and the last leg."""

    instance: _Id
    began: _Id


class LedgerCheck(StrEnum):
    """Result of looking in one instance's ledger for another instance's mark."""

    SEEN = "seen"
    ABSENT = "absent"
    DOWN = "down"


@dataclass(slots=True)
class ProbedInstance:
    """One process, identified by its report."""

    facts: Facts
    endpoints: set[int]
    """The indexes of the addresses at which the process was reached."""
    offset: float
    """How many seconds the process's clock is ahead of this machine's clock."""
    uncertainty: float
    """The maximum error in the offset, in seconds."""
    look: LedgerCheck | None = None
    """None if no mark was set, or if the instance does not need a ledger."""


class Obstacle(StrEnum):
    """Reason that an address cannot be probed."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    NOT_MCP = "not-mcp"
    OLD = "old"
    """The server does not support any protocol revision in which servers return questions."""
    NO_PROBE = "no-probe"
    STRANGE = "strange"
    """The server has another tool with the probe's name."""


class LiveQuestion(StrEnum):
    """Result of trying to ask a question on an older protocol revision."""

    YES = "yes"
    NO = "no"
    UNTRIED = "untried"


class ProbeOutcome(StrEnum):
    """A probe call's result."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(slots=True)
class Endpoint:
    """An address of the service, and what was observed there."""

    url: str
    trouble: Obstacle | None = None
    detail: str = ""
    """The server's message, or the error."""
    revisions: Sequence[str] = ()
    """The protocol revisions that the server reports."""
    older_clients: LiveQuestion = LiveQuestion.UNTRIED
    older_clients_detail: str = ""
    probes: int = 0
    """How many requests were sent to find instances."""
    quiet: int = 0
    """How many requests have been sent since a new instance was last found."""
    failures: list[str] = field(default_factory=list[str])
    """The errors from failed requests."""
    ready: int | None = None
    """The HTTP status of the readiness check; None if the server has no such route."""


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """A probe call. Its first leg is sent to one address, and its second leg to the same address or another one."""

    start: int
    end: int
    reached: ProbeOutcome
    began: str | None = None
    """The instance that served the first leg."""
    ended: str | None = None
    """The instance that served the last leg, if the call completed."""
    detail: str = ""


@dataclass(slots=True)
class Observed:
    """Everything that was observed about a service."""

    endpoints: list[Endpoint]
    instances: dict[str, ProbedInstance] = field(default_factory=dict[str, ProbedInstance])
    """The instances by ID, in the order in which they were found."""
    journeys: list[ProbedCall] = field(default_factory=list[ProbedCall])
    expected: int | None = None
    """How many instances the user expects."""
    marker: str | None = None
    """The instance that set a mark in its ledger."""

    @property
    def announced(self) -> int:
        """Return how many instances there must be, according to the reported worker counts."""
        groups: dict[str, list[ProbedInstance]] = {}
        for name, instance in self.instances.items():
            groups.setdefault(instance.facts.group or f"alone {name}", []).append(instance)
        return sum(max(len(some), *(one.facts.workers or 1 for one in some)) for some in groups.values())

    @property
    def sought(self) -> int:
        """Return how many instances to look for."""
        return max(self.announced, self.expected or 0)

    def label(self, instance: str | None) -> str:
        """Return an instance's short name in this report."""
        ids = list(self.instances)
        return f"#{ids.index(instance) + 1}" if instance is not None and instance in ids else "an unknown instance"

    def labels(self, instances: Iterable[str]) -> str:
        """List several instances, such as `#1, #2 and #4`."""
        names = [self.label(instance) for instance in instances]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"

    def behind(self, endpoint: int) -> list[str]:
        """Return the instances that were reached at an address."""
        return [instance.facts.instance for instance in self.instances.values() if endpoint in instance.endpoints]
