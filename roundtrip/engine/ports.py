"""Ports of the engine: what a leg needs of its client, and of those who answer in the client's place."""

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
"""Counts an answer to a question; False if the call has had too many different ones."""


class Client(Protocol):
    """Client of one request, with everything that asking it needs."""

    @property
    def protocol_version(self) -> str | None:
        """Return the negotiated revision; None without a request."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the capabilities that it declared."""
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
        """Tell a live client that its user is done with a page."""
        ...


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels in which the questions of one request reach a person or a model, besides its client's own forms."""

    page: Literal["url", "local", "link", "page"] | None = None
    """The channel of a question page; None if no page has the questions.

    "url": the client shows its address. "local": it opens in the browser of this machine. "link": the tool's result has
    its address. "page": the user is on it already.
    """
    model: bool = False
    """True if the model that called the tool may answer questions for anyone."""
    is_live: bool = False
    """True if the client itself is asked over its connection, for samples and roots."""
    for_links: Literal["local", "link"] | None = None
    """The channel of a question page for rounds with a link, if the client shows only forms."""

    @property
    def replaces_client(self) -> bool:
        """Return True if users are not asked by the client itself."""
        return self.page is not None or self.model

    @property
    def may_store(self) -> bool:
        """Return True if a call that asks may be stored."""
        return self.replaces_client or self.for_links is not None


class Wait(NamedTuple):
    """Time or signal for which a body waits."""

    until: float | None
    signal: str | None = None


class Waits(Protocol):
    """Waits of one run of a body, for which its leg ends."""

    def sleep(self, seconds: float, name: str | None) -> Wait | None:
        """Return the rest of a sleep; None if its time is over."""
        ...

    def receive(self, name: str, seconds: float | None) -> Wait | list[Any]:
        """Return the payload of a signal, alone in a list, or the wait for it.

        Raises:
            TimeoutError: It did not come in time.
        """
        ...


BeginWaits = Callable[[str, "ComputedValues"], Waits]
"""Begins the waits of a run of a body, given the method that waits; raises BodyMistake if the call cannot wait."""


class Settler(Protocol):
    """Settler of one kind of external questions, on the legs of one call."""

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Return the outcome of a question; None leaves it open, with `is_over` set if `fallback` must replace it."""
        ...

    def check(self, waiting: PendingQuestion) -> None:
        """Check that the call may wait for an open question.

        Raises:
            RoundtripError: It may not.
        """
        ...

    def opened_after(self, changed: Set[str]) -> list[str]:
        """Return the names of the questions that were opened when one of some others had its answer."""
        ...

    def void(self, stale: Iterable[str], computed: ComputedValues) -> None:
        """Note that outcomes no longer count, because a review has changed an answer before them."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Ports:
    """What the server and its features give to a leg. Without them, it asks its client alone, and remembers nothing."""

    claim: Claim | None = None
    """The claim on the call, if it is stored, or if its body must run once."""
    recorded_claim: RecordedClaim | None = None
    """The same claim, if it records the outcome: the body must run once, and the call is not stored."""
    begin_unclaimed: Callable[[], None] | None = None
    """Reports a body that should run once, and begins without a token and so without a claim."""
    needs_token: bool = False
    """True to ask for nothing first, so that a repeated request is known by its token."""
    count_guess: CountGuess | None = None
    """Counts answers to questions with `guesses=`, which need it."""
    settlers: Mapping[type[ExternalQuestion], Settler] = field(default_factory=dict[Any, Any])
    """Settle the questions that no client answers, by their kinds."""
    begin_waits: BeginWaits | None = None
    """Begins waits for times and signals."""
    is_stored: bool = False
    """True for a leg of a stored call, which looks at a page once, and again on a later leg."""
    channels: Channels = Channels()
    by_model: Collection[str] = ()
    """The names of the questions whose answers a model gave."""
    page_wait: float = math.inf
    """The most seconds that it waits for a page, also if the page has a longer `wait=`."""
    hands_over: bool = False
    """True to end before the body, which will run in a task."""
    pinner: Pinner | None = None
    """Makes the pins of questions. Without it, pins have a salt and no key."""
    outlive: Outlive | None = None
    """Keeps its dependencies for threads that go on after a timeout."""
    report: Report = lambda label, error: None
    offer: Callable[[Callable[[], Any]], object] = lambda context: None
    """Lets the author's code find the context without a parameter."""
    entered: TeardownStack | None = None
    """The dependencies entered for the request before the leg began. They are exited with those of the leg."""
