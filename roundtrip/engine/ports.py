"""Engine ports: what a leg needs from its client, and from features that answer instead."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from mcp_types import ClientCapabilities, InputRequest, InputResponse
    from pydantic import BaseModel

    from roundtrip.engine.claim import Claim, RecordedClaim
    from roundtrip.engine.computed import ComputedValues
    from roundtrip.engine.teardown import Outlive, Report, TeardownStack
    from roundtrip.machine.pins import Pinner
    from roundtrip.questions.outcomes import Outcome
    from roundtrip.questions.wire import ExternalQuestion, PendingQuestion


CountGuess = Callable[[str, Any, int], Awaitable[bool]]
"""Counts an answer to a question; returns False if the call has had too many different ones."""


class Client(Protocol):
    """One request's client, with everything that asking it needs."""

    @property
    def protocol_version(self) -> str | None:
        """Return the negotiated revision; None without a request."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the client's declared capabilities."""
        ...

    @property
    def can_be_asked_live(self) -> bool:
        """Return True if its connection carries requests from the server."""
        ...

    @property
    def in_session(self) -> bool:
        """Return True if its requests belong to a session that the server keeps."""
        ...

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Ask one question and wait for the answer.

        Raises:
            ConnectionLost: The client left before it answered.
        """
        ...

    async def tell_done(self, elicitation_id: str) -> None:
        """Notify a live client that its user has finished on a page."""
        ...


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels that carry one request's questions to a person or a model, besides its client's own forms."""

    page: Literal["url", "local", "link", "page"] | None = None
    """The channel for a question page; None if no page shows the questions.

    "url": the client shows its address. "local": it opens in this machine's browser. "link": the tool's result has its
    address. "page": the user is already on it.
    """
    model: bool = False
    """True if the model that called the tool may answer questions that anyone may answer."""
    is_live: bool = False
    """True if the client is asked over its connection for samples and roots."""
    for_links: Literal["local", "link"] | None = None
    """The channel for a question page in rounds with a link, if the client shows only forms."""

    @property
    def replaces_client(self) -> bool:
        """Return True if users are not asked by the client."""
        return self.page is not None or self.model

    @property
    def may_store(self) -> bool:
        """Return True if a call that asks may be stored."""
        return self.replaces_client or self.for_links is not None


class Wait(NamedTuple):
    """Time or signal that a body waits for."""

    until: float | None
    signal: str | None = None


class Waits(Protocol):
    """Waits in one run of a body, which end its leg."""

    def sleep(self, seconds: float, name: str | None) -> Wait | None:
        """Return the rest of a sleep; None if its time has passed."""
        ...

    def receive(self, name: str, seconds: float | None) -> Wait | list[Any]:
        """Return a signal's payload as a list's only item, or the wait for it.

        Raises:
            TimeoutError: The signal did not arrive in time.
        """
        ...


BeginWaits = Callable[[str, "ComputedValues"], Waits]
"""Begins the waits in a body's run, given the method that waits; raises BodyMistake if the call cannot wait."""


class Settler(Protocol):
    """Settles one kind of external question on a call's legs."""

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Return a question's outcome; None leaves it open, with `is_over` set if `fallback` must replace it."""
        ...

    def check(self, waiting: PendingQuestion) -> None:
        """Check that the call may wait for an open question.

        Raises:
            RoundtripError: It may not.
        """
        ...

    def opened_after(self, changed: Set[str]) -> list[str]:
        """Return the names of questions that were opened after one of the changed names had been answered."""
        ...

    def void(self, stale: Iterable[str], computed: ComputedValues) -> None:
        """Note that outcomes no longer count, because a review has changed an answer before them."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Ports:
    """Everything that the server and its features provide to a leg. Without them, it only asks its client."""

    claim: Claim | None = None
    """The claim on the call, if it is stored or its body must run once."""
    recorded_claim: RecordedClaim | None = None
    """The same claim, if it records the outcome: the body must run once, and the call is not stored."""
    begin_unclaimed: Callable[[], None] | None = None
    """Reports that a body that should run once begins without a token, and so without a claim."""
    needs_token: bool = False
    """True to begin with a round without questions, so that a token identifies repeated requests."""
    count_guess: CountGuess | None = None
    """Counts answers to questions with `guesses=`, which need it."""
    settlers: Mapping[type[ExternalQuestion], Settler] = field(default_factory=dict[Any, Any])
    """Settle the questions that no client answers, by kind."""
    begin_waits: BeginWaits | None = None
    """Begins waits for times and signals."""
    is_stored: bool = False
    """True for a stored call's leg, which looks at a page once, and again on a later leg."""
    channels: Channels = Channels()
    by_model: Collection[str] = ()
    """Names of questions that a model answered."""
    page_wait: float = math.inf
    """The most seconds that the leg waits for a page, even if the page has a longer `wait=`."""
    hands_over: bool = False
    """True to end before the body, which will run in a task."""
    pinner: Pinner | None = None
    """Makes question pins. Without it, pins have a salt and no key."""
    outlive: Outlive | None = None
    """Keeps the leg's dependencies for threads that continue after a timeout."""
    report: Report = lambda label, error: None
    offer: Callable[[Callable[[], Any]], object] = lambda context: None
    """Lets author code find the context without a parameter."""
    entered: TeardownStack | None = None
    """The dependencies entered for the request before the leg began. They exit together with the leg's."""
