"""Define the protocol of tracers, and the facts that only a server knows.

A tracer makes a watch for each request that reaches a function, and receives each token that the server rejects. It may
receive the ends of stored calls outside of requests, too. The watch is called with every fact in order: those of the
runtime (`roundtrip.machine.facts`) and those below.
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
    """The journal that the client brought."""
    token_bytes: int | None
    arguments: Mapping[str, Any]
    within: str | None
    """The call whose function called this one."""
    takes_over: bool = False
    """True if a worker continues a task whose worker stopped renewing its lease."""

    @property
    def tool(self) -> str:
        """Return the name of the tool, prompt or resource template."""
        return self.subject.tool


class TokenRejection(NamedTuple):
    """The server rejected a token; `journal` is its content if the token is authentic."""

    reason: RejectionReason
    method: str
    tool: str | None
    protocol: str | None
    principal: str | None
    journal: Journal | None
    token_bytes: int | None


class StoppedCall(NamedTuple):
    """A stored call ended otherwise than by its own leg."""

    call_id: str
    tool: str
    how: Literal["cancelled", "lost", "expired", "unstored", "joined"]
    ends_leg: bool
    """True if a worker ran a leg of it, and reports the end of that leg itself."""
    joined: str | None = None
    """The equal call that goes on in its place."""


class Wrote(NamedTuple):
    """The server wrote the journal for the next token."""

    journal: Journal


class Returned(NamedTuple):
    """The function returned; `value` is its result as the client receives it."""

    value: Any


class Raised(NamedTuple):
    """An error ended the leg."""

    error: BaseException


class HandedFact(NamedTuple):
    """The call goes on as a task, and the request ends before the body."""


class DeclinedFact(NamedTuple):
    """The user declined or cancelled a question that the call needs; `reason` names it."""

    reason: str


class Closed(NamedTuple):
    """The request has been served. This is the last fact; it has the size of the sent token, if there is one."""

    token_bytes: int | None


class LinkedWatch:
    """Watch that records a leg as a span. The token carries its `traceparent`, so that the next leg can link to it."""

    __slots__ = ("_watch", "traceparent")

    def __init__(self, watch: Watch, traceparent: str) -> None:
        self._watch = watch
        self.traceparent = traceparent

    def __call__(self, fact: Any) -> None:
        """Pass one fact to the watch."""
        self._watch(fact)


@runtime_checkable
class Tracer(Protocol):
    """Observer of a server's calls; give it to `Server(trace=...)`."""

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch for one request, which is called with each of its facts."""
        ...

    def reject(self, rejection: TokenRejection) -> None:
        """Record a rejected token."""
        ...


@runtime_checkable
class FlushedTracer(Protocol):
    """Tracer that keeps facts for a while."""

    def flush(self) -> None:
        """Save or send all facts now; any thread may call it."""
        ...


@runtime_checkable
class StoredCallTracer(Protocol):
    """Tracer that records how stored calls end without a leg."""

    def stop(self, stopped: StoppedCall) -> None:
        """Record the end of a stored call."""
        ...


class Unfailing:
    """Base of tracers whose watches never raise, so that the server calls them without a guard."""
