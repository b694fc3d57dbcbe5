"""The tracer protocol, and facts that only a server knows.

For each request that reaches a function, a tracer creates a watch. The tracer also receives each token that the server
rejects. A `StoredCallTracer` also learns when a stored call ends outside a request. The server calls a watch with every
fact, in order: the runtime's facts (`roundtrip.machine.facts`) and the facts defined here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal

__all__ = [
    "Beginning",
    "Closed",
    "DeclinedFact",
    "Era",
    "FlushedTracer",
    "HandedFact",
    "LinkedWatch",
    "Raised",
    "Returned",
    "ServedFunction",
    "StoppedCall",
    "StoredCallTracer",
    "TokenRejection",
    "Tracer",
    "Unfailing",
    "Wrote",
]

Era = Literal["retry", "live", "direct", "task"]


class ServedFunction(NamedTuple):
    """Facts that all requests for one function share."""

    method: str
    tool: str
    version: str | None
    build: str
    plan: str


class Beginning(NamedTuple):
    """A request reached its function."""

    call_id: str
    leg: int
    round: int
    subject: ServedFunction
    era: Era
    protocol: str | None
    principal: str | None
    journal: Journal | None
    """The journal in the client's token; None without a token."""
    token_bytes: int | None
    arguments: Mapping[str, Any]
    within: str | None
    """Id of the call whose function made this call; None if the client made this call."""
    takes_over: bool = False
    """True if this worker continues a task because the previous worker stopped renewing its lease."""

    @property
    def tool(self) -> str:
        """Return the name of the tool, prompt or resource template."""
        return self.subject.tool


class TokenRejection(NamedTuple):
    """The server rejected a token. `journal` is the token's content if the token is authentic."""

    reason: RejectionReason
    method: str
    tool: str | None
    protocol: str | None
    principal: str | None
    journal: Journal | None
    token_bytes: int | None


class StoppedCall(NamedTuple):
    """A stored call was ended from outside, not by its own leg."""

    call_id: str
    tool: str
    how: Literal["cancelled", "lost", "expired", "unstored", "joined"]
    ends_leg: bool
    """True if a worker was running a leg of this call. That worker reports the leg's end itself."""
    joined: str | None = None
    """Id of the identical call that continues in place of this call."""


class Wrote(NamedTuple):
    """The server wrote the journal for the next token."""

    journal: Journal


class Returned(NamedTuple):
    """The function returned. `value` is the result as the client receives it."""

    value: Any


class Raised(NamedTuple):
    """An error ended the leg."""

    error: BaseException


class HandedFact(NamedTuple):
    """The request ended before the body ran, because the call continues as a task."""


class DeclinedFact(NamedTuple):
    """The user declined or cancelled a question that the call needs. `reason` names the question."""

    reason: str


class Closed(NamedTuple):
    """The request has been served. This is always the last fact. If a token was sent, the fact contains its size."""

    token_bytes: int | None


class LinkedWatch:
    """A watch that records a leg as a span. The token carries its `traceparent`, so that the next leg can link to the
    span.
    """

    __slots__ = ("_watch", "traceparent")

    def __init__(self, watch: Watch, traceparent: str) -> None:
        self._watch = watch
        self.traceparent = traceparent

    def __call__(self, fact: Any) -> None:
        """Pass one fact to the watch."""
        self._watch(fact)


@runtime_checkable
class Tracer(Protocol):
    """Observer of a server's calls, for `Server(trace=...)`."""

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch for one request. The server calls the watch with each fact about the request."""
        ...

    def reject(self, rejection: TokenRejection) -> None:
        """Record a rejected token."""
        ...


@runtime_checkable
class FlushedTracer(Protocol):
    """Tracer that buffers facts."""

    def flush(self) -> None:
        """Save or send all facts now. Any thread may call this method."""
        ...


@runtime_checkable
class StoredCallTracer(Protocol):
    """Tracer that also records when a stored call ends without a leg."""

    def stop(self, stopped: StoppedCall) -> None:
        """Record that a stored call has ended."""
        ...


class Unfailing:
    """Base class for tracers whose watches never raise, so that the server can call them without a guard."""
