"""Engine ports: what a leg needs from its client, and from features that can take the client's place."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from roundtrip.machine.journal import Chain

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
"""Counts an answer to a question. Returns False if the question has received too many different answers in this call.
"""


class Client(Protocol):
    """The client that sent one request, with everything that is needed to ask it."""

    @property
    def protocol_version(self) -> str | None:
        """Return the negotiated protocol revision; None if there is no request."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the capabilities that the client declared."""
        ...

    @property
    def can_be_asked_live(self) -> bool:
        """Return True if the client's connection can carry requests from the server."""
        ...

    @property
    def in_session(self) -> bool:
        """Return True if the client's requests belong to a session that the server keeps."""
        ...

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Ask one question, and wait for the answer.

        Raises:
            ConnectionLost: The client left before it answered.
        """
        ...

    async def tell_done(self, elicitation_id: str) -> None:
        """Notify a live client that its user has completed a page."""
        ...


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels that carry one request's questions to a person or a model, in addition to the client's own forms."""

    page: str | None = None
    """The name of the channel whose page shows the questions; None if no page shows them. It is written into traces."""
    model: bool = False
    """True if the model that called the tool may answer questions that anyone may answer."""
    is_live: bool = False
    """True if the client is asked for samples and roots over its connection."""
    for_links: str | None = None
    """The page channel for rounds that contain a link, if the client can show only forms."""

    @property
    def replaces_client(self) -> bool:
        """Return True if a page or a model receives the questions instead of the client."""
        return self.page is not None or self.model

    @property
    def may_store(self) -> bool:
        """Return True if a call with questions may be stored."""
        return self.replaces_client or self.for_links is not None


class Wait(NamedTuple):
    """One wait in a body: until a given time, or for a signal."""

    until: float | None
    signal: str | None = None


class Waits(Protocol):
    """The waits in one run of a body. Each wait ends the leg."""

    def sleep(self, seconds: float, name: str | None) -> Wait | None:
        """Return the wait for a sleep's remaining time; None if no time remains."""
        ...

    def receive(self, name: str, seconds: float | None) -> Wait | list[Any]:
        """Return a one-item list with a signal's payload, or the wait for a signal that has not arrived.

        Raises:
            TimeoutError: The signal did not arrive in time.
        """
        ...


BeginWaits = Callable[[str, "ComputedValues"], Waits]
"""Makes the `Waits` for one run of a body. The first argument is the name of the method that waits.

Raises BodyMistake if the call cannot wait.
"""


class Settler(Protocol):
    """Settles one kind of external question on a call's legs."""

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Return a question's outcome, or None to leave the question open. Also set `waiting.is_over` if the question's
        `fallback` must replace the outcome.
        """
        ...

    def check(self, waiting: PendingQuestion) -> None:
        """Check that the call may wait for an open question.

        Raises:
            RoundtripError: The call may not wait for the question.
        """
        ...

    def opened_after(self, changed: Set[str]) -> list[str]:
        """Return the names of questions that were opened after the user had answered one of the changed questions."""
        ...

    def void(self, stale: Iterable[str], computed: ComputedValues) -> None:
        """Make the given questions' outcomes void, because they may depend on an answer that a review has changed."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Ports:
    """Everything that the server and its features provide to a leg. Without ports, a leg can ask only its client."""

    claim: Claim | None = None
    """The claim on the call, if the call is stored or its body must run once."""
    recorded_claim: RecordedClaim | None = None
    """The same claim, if it records the outcome. It does so if the body must run once and the call is not stored."""
    begin_unclaimed: Callable[[], None] | None = None
    """Reports the start of a run-once body whose request has no token. Without a token, there is no claim."""
    needs_token: bool = False
    """True if the call must begin with a round without questions, so that a token identifies repeated requests."""
    count_guess: CountGuess | None = None
    """Counts the answers to questions with `guesses=`. If it is None, such questions cannot be asked."""
    settlers: Mapping[type[ExternalQuestion], Settler] = field(default_factory=dict[Any, Any])
    """Settlers for the questions that no client answers, by question class."""
    begin_waits: BeginWaits | None = None
    """Makes the object that a body uses to sleep and to wait for signals."""
    is_stored: bool = False
    """True for a stored call's leg. The leg checks a page only once; a later leg checks the page again."""
    channels: Channels = Channels()
    by_model: Collection[str] = ()
    """Names of questions that a model has answered."""
    page_wait: float = math.inf
    """The maximum number of seconds that the leg waits for a page, even if the page has a longer `wait=`."""
    asks_between_legs: bool = False
    """True if the leg must end before a live client is asked. The next leg then begins with the answers."""
    chain: Chain = Chain.NONE
    """How the leg's requests relate to the intent of their call."""
    skipped_rounds: int = 0
    """How many of the call's rounds were not those of the leg's own chain of requests."""
    hands_over: bool = False
    """True if the leg must end before the body, because the body will run in a task."""
    pinner: Pinner | None = None
    """Makes question pins. If it is None, pins are made without a key."""
    outlive: Outlive | None = None
    """Keeps the leg's dependencies open for threads that continue after a timeout."""
    report: Report = lambda label, error: None
    offer: Callable[[Callable[[], Any]], object] = lambda context: None
    """Makes the context available to the author's code without a parameter."""
    entered: TeardownStack | None = None
    """Dependencies that were entered for the request before the leg began. They exit together with the leg's
    dependencies.
    """
