"""Rehearsals: legs that are served up to where the body would run, to see what this build asks.

Everything in front of a body does run: middleware, gates, resolvers, and what they enter, which is left as after a
failure. Nothing of it is recorded. The journal of a leg is handed over as it is, so no token has to be made.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from roundtrip.errors import RoundtripError
from roundtrip.machine.call import Step
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event
from roundtrip.recording.tracing import Beginning, Raised, Refusal, Refused, Tracer, Wrote
from roundtrip.runtime.answers import Open
from roundtrip.server.requests import asking_request

__all__ = ["REHEARSED", "End", "Rehearsal", "Rehearsed", "rehearsing"]


class End(Enum):
    """Where a leg ended that was rehearsed."""

    ASKS = "asks"
    BODY = "body"
    """Its body would have run."""
    REFUSED = "refused"
    """What the user said ended it."""
    FAILED = "failed"
    REJECTED = "rejected"
    """The client could not be asked."""
    UNREACHED = "unreached"
    """The request did not get as far as its function."""


class _BodyReached(MCPError):
    """Ends a leg in front of its body. A protocol error, as nothing makes another error of those."""

    def __init__(self) -> None:
        super().__init__(code=INTERNAL_ERROR, message="this is a rehearsal, and the body is not run")


@dataclass(slots=True)
class Rehearsed:
    """What became of one leg. It watches it, in the place of the server's tracers."""

    end: End = End.UNREACHED
    questions: tuple[Open, ...] = ()
    journal: Journal | None = None
    """What the next leg would have to know."""
    error: BaseException | None = None
    refusal: str | None = None

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the leg, and not those of functions that are called from within it."""
        return self._watch if beginning.within is None else _ignore

    def refuse(self, refusal: Refusal) -> None:
        """There are no tokens in a rehearsal."""
        del refusal

    def stop(self, owner: str, *, outermost: bool) -> None:
        """End a leg whose body would run now.

        Raises:
            MCPError: It is the leg that is rehearsed.
            RoundtripError: It is of a function that was called from within.
        """
        if not outermost:
            raise RoundtripError(f"{owner} is called while parameters are filled, and a rehearsal runs no bodies")
        self.end = End.BODY
        raise _BodyReached

    def _watch(self, fact: Any) -> None:
        if isinstance(fact, Step):
            self._moved(fact)
        elif isinstance(fact, Wrote):
            self.journal = fact.journal
        elif isinstance(fact, Raised):
            self.error = fact.error
        elif isinstance(fact, Refused):
            self.refusal = fact.reason

    def _moved(self, step: Step) -> None:
        if self.end is End.BODY:
            # That it fails there is the rehearsal's doing.
            return
        end = _ENDS.get(step.event)
        if end is not None:
            self.end = end
        if step.event is Event.ASK:
            self.questions = tuple(step.detail.get("questions", ()))


_ENDS: Final = {
    Event.ASK: End.ASKS,
    Event.REFUSE: End.REFUSED,
    Event.FAIL: End.FAILED,
    Event.REJECT: End.REJECTED,
}


def _ignore(fact: Any) -> None:
    del fact


REHEARSED: ContextVar[Rehearsed | None] = ContextVar("roundtrip_rehearsed", default=None)
"""The leg that is being rehearsed, where one is."""

_TRACER: type[Tracer] = Rehearsed


class Rehearsal:
    """The innermost middleware of a server that rehearses: its requests are legs of the journal that is set."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        """What the next request's call remembers; None for a new call."""
        self.rehearsed = Rehearsed()
        """What became of the last request."""

    def next(self, journal: Journal | None) -> None:
        """Prepare for a request."""
        self.journal = journal
        self.rehearsed = Rehearsed()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        request = asking_request()
        if request is None:
            return await call_next(ctx)
        request.journal = self.journal
        reset = REHEARSED.set(self.rehearsed)
        try:
            return await call_next(ctx)
        finally:
            REHEARSED.reset(reset)


@contextmanager
def rehearsing(server: MCPServer[Any]) -> Generator[Rehearsal]:
    """Have all requests of a server rehearsed. It must not serve anybody else meanwhile."""
    rehearsal = Rehearsal()
    server.middleware.append(rehearsal)
    try:
        yield rehearsal
    finally:
        server.middleware.remove(rehearsal)
