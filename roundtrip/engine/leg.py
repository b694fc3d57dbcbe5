"""Everything that is needed to serve a leg, and every way in which a leg can end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp_types import InputRequiredResult

if TYPE_CHECKING:
    # A server whose tools never ask does not need to load most of these modules.
    from mcp_types import InputResponse

    from roundtrip.engine.ports import Client, Ports, Wait
    from roundtrip.machine.call import Call
    from roundtrip.machine.journal import Journal, Limits
    from roundtrip.questions.markers import Marker
    from roundtrip.questions.wire import PendingQuestion
    from roundtrip.resolvers.node_outcomes import Reused
    from roundtrip.resolvers.plan import Plan
    from roundtrip.resolvers.threads import Threads

DONE: Final = "done"
"""Name of the only parameter in the plan for a page's `done` function. The parameter receives the function's result."""


class Finished(NamedTuple):
    """A leg whose body has returned."""

    value: Any


class Suspended(NamedTuple):
    """A leg that ended with open questions. `state` is the text that `Leg.write` returned for the leg's journal."""

    questions: dict[str, PendingQuestion]
    state: str
    waits: tuple[Wait, ...] = ()
    """The call's pending sleeps and signals, in addition to its questions."""
    channel: str | None = None
    """The channel that carries the questions; None if the client itself asks them."""
    external: Mapping[str, PendingQuestion] = MappingProxyType({})
    """The external questions that the call waits for."""

    @property
    def is_for_others(self) -> bool:
        """Return True if a page, a model or a group must answer, so that the call is stored."""
        return self.channel is not None if self.questions else bool(self.external)

    def result(self) -> InputRequiredResult:
        """Return the SDK result that asks the questions."""
        requests = {key: waiting.request() for key, waiting in self.questions.items()}
        return InputRequiredResult(input_requests=requests, request_state=self.state)


class Authored(NamedTuple):
    """A leg that ends with questions that the author asks by hand. `state` contains the author's own state, if there is
    any.
    """

    result: InputRequiredResult
    state: str | None


class Declined(NamedTuple):
    """A call that ended because the user declined or cancelled a question that the call needs."""

    reason: str


class HandedOver(NamedTuple):
    """A leg that has resolved its parameters and written the journal. The body will run in a task."""


class JoinedCall(NamedTuple):
    """A leg that has not begun, because a stored call does the same."""

    call_id: str
    epoch: int
    """The number of the ledger's claim under which the call was stored."""


LegEnd = Finished | Suspended | Authored | Declined | HandedOver | JoinedCall


class PlainBody(NamedTuple):
    """A body that may run in a worker thread, directly after the plain resolvers."""

    call: Callable[[dict[str, Any]], Callable[[], Any]]
    """Given the resolved parameters, returns the function to run."""
    finish: Callable[[Any], Awaitable[Any]]
    """Given the value that the function returned, returns the body's result. Runs on the loop."""


@dataclass(slots=True, eq=False, repr=False)
class Leg:
    """One request in a call, with everything that is needed to serve it. The caller provides the clock and the ids."""

    call: Call
    plan: Plan
    client: Client
    born: float
    end: float
    """The time after which no leg of this call is accepted. The build that began the call sets it."""
    clock: Callable[[], float]
    limits: Limits
    write: Callable[[Journal], str]
    """Writes the journal. Returns text for the result: the journal itself, or a placeholder for the token."""
    plan_for: Callable[[Callable[..., Any]], Plan]
    """Makes the plan for a page's `done` function, which may take the same parameters as a resolver."""
    threads: Threads
    """The threads that run plain resolvers and steps."""
    ports: Ports
    confirmation: tuple[str, Marker] | None = None
    """A name and its question, which the user must accept before anything runs."""
    build: str = ""
    reused: Reused | None = None
    """Outcomes of nodes that ran for this request before the leg began."""
    is_of_tool: bool = True
    """False for a prompt or a resource."""
    version: str | None = None
    """The tool's version, which stays the same for the whole call."""
    journal: Journal | None = None
    responses: Mapping[str, InputResponse | None] | None = None
    """The answers that came with the request. A malformed answer is None."""
    timeout: float | None = None
    """How many seconds the leg's work may take. Time in which a user answers questions does not count."""
    plain_body: PlainBody | None = None
