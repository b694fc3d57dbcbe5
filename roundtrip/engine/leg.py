"""One leg's values: everything that serving it needs, and how it can end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp_types import InputRequiredResult

if TYPE_CHECKING:
    # A server whose tools never ask does not load most of these.
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
"""The parameter that the plan for a page's `done` function fills."""


class Finished(NamedTuple):
    """End of a leg whose body has returned."""

    value: Any


class Suspended(NamedTuple):
    """End of a leg with questions. `state` is the text that `Leg.write` returned for its journal."""

    questions: dict[str, PendingQuestion]
    state: str
    waits: tuple[Wait, ...] = ()
    """The times and signals that it waits for, besides answers."""
    channel: str | None = None
    """The channel that carries the questions; None if the client asks them."""
    external: Mapping[str, PendingQuestion] = MappingProxyType({})
    """The questions that it waits for and that no client answers."""

    def result(self) -> InputRequiredResult:
        """Return the result with which the SDK's handlers ask them."""
        requests = {key: waiting.request() for key, waiting in self.questions.items()}
        return InputRequiredResult(input_requests=requests, request_state=self.state)


class Authored(NamedTuple):
    """End of a leg with questions that the author asks by hand; `state` has the author's state, if there is one."""

    result: InputRequiredResult
    state: str | None


class Declined(NamedTuple):
    """End of a call whose user declined or cancelled a question that it needs."""

    reason: str


class HandedOver(NamedTuple):
    """End of a leg whose parameters are resolved, and whose body will run in a task; the journal is written."""


LegEnd = Finished | Suspended | Authored | Declined | HandedOver


class PlainBody(NamedTuple):
    """Body that may run in a worker thread, directly after the plain resolvers."""

    call: Callable[[dict[str, Any]], Callable[[], Any]]
    """Returns the function to run, given the resolved parameters."""
    finish: Callable[[Any], Awaitable[Any]]
    """Returns the body's result on the loop, given the function's."""


@dataclass(slots=True, eq=False, repr=False)
class Leg:
    """One request in a call, with everything that serving it needs. The clock and the ids come from outside."""

    call: Call
    plan: Plan
    client: Client
    born: float
    end: float
    """The time after which no leg of the call may arrive; the build that began the call sets it."""
    clock: Callable[[], float]
    limits: Limits
    write: Callable[[Journal], str]
    """Writes the journal, and returns text for the result: the journal itself, or a placeholder for the token."""
    plan_for: Callable[[Callable[..., Any]], Plan]
    """Plans a page's `done` function, which may take the same parameters as a resolver."""
    threads: Threads
    """Run plain resolvers and steps."""
    ports: Ports
    confirmation: tuple[str, Marker] | None = None
    """A question, with its name, that must be accepted before anything runs."""
    build: str = ""
    reused: Reused | None = None
    """Outcomes of nodes that ran for the request before the leg began."""
    is_of_tool: bool = True
    """False for a prompt or a resource."""
    version: str | None = None
    """The tool's version, which the call keeps."""
    journal: Journal | None = None
    responses: Mapping[str, InputResponse | None] | None = None
    """The answers that came with the request; None for a malformed one."""
    timeout: float | None = None
    """Seconds that the leg's work may take. Time in which a user is asked does not count."""
    plain_body: PlainBody | None = None
