"""Values of one leg: everything that serving it needs, and the ways in which it ends."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp_types import InputRequiredResult

if TYPE_CHECKING:
    # A server whose tools never ask does without most of these.
    from mcp_types import InputResponse

    from roundtrip.engine.claim import Claim
    from roundtrip.engine.ports import Client, Settler, Ways
    from roundtrip.engine.teardown import Outlive, Report, TeardownStack
    from roundtrip.machine.call import Call
    from roundtrip.machine.journal import Journal, Limits
    from roundtrip.machine.pins import Pinner
    from roundtrip.questions.markers import Marker
    from roundtrip.questions.outcomes import Outcome
    from roundtrip.questions.wire import ExternalQuestion, PendingQuestion
    from roundtrip.resolvers.plan import Plan
    from roundtrip.resolvers.threads import Threads

DONE: Final = "done"
"""The parameter that the plan of a page's `done` function fills."""


class Finished(NamedTuple):
    """End of a leg whose body ran to its end."""

    value: Any


class Wait(NamedTuple):
    """Time or signal for which the body of a task waits."""

    until: float | None
    signal: str | None = None


class Suspended(NamedTuple):
    """End of a leg with questions. The next leg brings `state` back, as its `request_state`."""

    questions: dict[str, PendingQuestion]
    state: str
    waits: tuple[Wait, ...] = ()
    """The times and signals for which a task waits, besides answers."""
    channel: str | None = None
    """The channel by which the questions are asked; None if the client asks them."""
    external: Mapping[str, PendingQuestion] = MappingProxyType({})
    """The questions that it waits for and no client answers."""

    def names_for_model(self) -> frozenset[str]:
        """Return the names of the questions that a model may answer."""
        named = self.questions.items() if self.channel == "model" else ()
        return frozenset(name for name, waiting in named if waiting.question.is_for_anyone)

    def result(self) -> InputRequiredResult:
        """Return the result with which the SDK's handlers ask them."""
        requests = {key: waiting.request() for key, waiting in self.questions.items()}
        return InputRequiredResult(input_requests=requests, request_state=self.state)


class Authored(NamedTuple):
    """End of a leg with questions that the author asks by hand; `state` has the author's own state, if there is one."""

    result: InputRequiredResult
    state: str | None


class Declined(NamedTuple):
    """End of a call whose user declined or cancelled a question that it needs."""

    reason: str


class HandedOver(NamedTuple):
    """End of a leg whose parameters have their values, and whose body will run in a task; the journal is written."""


LegEnd = Finished | Suspended | Authored | Declined | HandedOver

CountGuess = Callable[[str, Any, int], Awaitable[bool]]
"""Counts an answer to a question; False if the call has had too many different ones."""


class PlainBody(NamedTuple):
    """Body that may run in a worker thread, in one go with the plain resolvers before it."""

    call: Callable[[dict[str, Any]], Callable[[], Any]]
    """Returns the function to run, given the values of the filled parameters."""
    finish: Callable[[Any], Awaitable[Any]]
    """Returns the body's result on the loop, given the function's."""


@dataclass(slots=True, eq=False, repr=False)
class Leg:
    """One request of a call, with everything that serving it needs. The clock and the ids come from outside."""

    call: Call
    plan: Plan
    client: Client
    born: float
    end: float
    """The time after which no leg of the call may arrive, as set by the build that began the call."""
    clock: Callable[[], float]
    limits: Limits
    write: Callable[[Journal], str]
    """Writes the journal, and returns the `request_state` for the next leg."""
    plan_for: Callable[[Callable[..., Any]], Plan]
    """Plans the `done` function of a page, which may take the same parameters as a resolver."""
    threads: Threads
    """Run plain resolvers and steps."""
    confirmation: tuple[str, Marker] | None = None
    """A question, with its name, that must be accepted before anything runs."""
    build: str = ""
    entered: TeardownStack | None = None
    """The dependencies entered for the request before the leg began. They are exited with those of the leg."""
    known: Mapping[Hashable, Outcome] | None = None
    """The outcomes of nodes that ran for the request before the leg began."""
    report: Report = lambda label, error: None
    offer: Callable[[Callable[[], Any]], object] = lambda context: None
    """Lets the author's code find the context without a parameter."""
    is_of_tool: bool = True
    """False for a prompt or a resource."""
    version: str | None = None
    """The version of the tool, which the call stays on."""
    journal: Journal | None = None
    responses: Mapping[str, InputResponse | None] | None = None
    """The answers that came with it; None for a malformed one."""
    pinner: Pinner | None = None
    """Makes the pins of questions. Without it, pins have a salt and no key."""
    claim: Claim | None = None
    """The claim on the call in the ledger, if the body must run once."""
    begin_unclaimed: Callable[[], None] | None = None
    """Reports a body that should run once and begins without a token. None if an empty round gives it a token first."""
    count_guess: CountGuess | None = None
    """Counts answers to questions with `guesses=`, which need it."""
    timeout: float | None = None
    """Seconds that its work may take. Time in which a user is asked does not count."""
    outlive: Outlive | None = None
    """Keeps its dependencies for threads that go on after a timeout."""
    page_wait: float = math.inf
    """The most seconds that it waits for a page, also if the page has a longer `wait=`."""
    hands_over: bool = False
    """True to end before the body, which will run in a task."""
    ways: Ways | None = None
    """The ways to ask its questions besides its client's own."""
    needs_token: bool = False
    """True to ask for nothing first, so that a repeated request is known by its token."""
    signals: Mapping[str, Any] | None = None
    """The signals that a task has received, by their names; None outside of a task."""
    by_model: Collection[str] = ()
    """The names of the questions whose answers a model gave."""
    settlers: Mapping[type[ExternalQuestion], Settler] = field(default_factory=dict[Any, Any])
    """Settle the questions that no client answers, by their kinds."""
    plain_body: PlainBody | None = None
