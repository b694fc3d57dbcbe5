"""Rehearsals: legs that are served up to where the body would run, to see what this build asks.

Everything in front of a body does run: middleware, gates, resolvers, and what they enter, which is left as after a
failure. Each leg has a ledger, tracers and a bus of its own, so that it changes nothing outside of the application.
The journal of a leg is handed over as it is, so no token has to be made.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from roundtrip.errors import RoundtripError
from roundtrip.ledger.memory import MemoryLedger
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.parts import Effects
from roundtrip.server.requests import asking_request
from roundtrip.server.server import Server
from roundtrip.trace.writing.tracers import Tracers
from roundtrip.tracing import Beginning, DeclinedFact, Raised, TokenRejection, Wrote

__all__ = ["End", "Rehearsal", "Rehearsed", "rehearsing"]


class End(Enum):
    """Where a leg ended that was rehearsed."""

    ASKS = "asks"
    BODY = "body"
    """Its body would have run."""
    DECLINED = "declined"
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
    questions: tuple[PendingQuestion, ...] = ()
    journal: Journal | None = None
    """What the next leg would have to know."""
    error: BaseException | None = None
    refusal: str | None = None
    called: str | None = None
    """A function that was called from within, and whose body the rest of the leg would have needed."""
    unseen: str | None = None
    """What the request could not see, and was served all the same."""

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the leg, and not those of functions that are called from within it."""
        return self._watch if beginning.within is None else _ignore

    def reject(self, rejection: TokenRejection) -> None:
        """There are no tokens in a rehearsal."""
        del rejection

    def stop(self, owner: str, *, outermost: bool) -> None:
        """End a leg whose body would run now.

        Raises:
            MCPError: It is the leg that is rehearsed.
            RoundtripError: It is of a function that was called from within.
        """
        if not outermost:
            self.called = owner
            raise RoundtripError(f"{owner} is called while parameters are filled, and a rehearsal runs no bodies")
        self.end = End.BODY
        raise _BodyReached

    def let_in(self, owner: str) -> None:
        """Take note of what the request could not see, and was served all the same."""
        self.unseen = owner

    def _watch(self, fact: Any) -> None:
        if isinstance(fact, Transition):
            self._moved(fact)
        elif isinstance(fact, Wrote):
            self.journal = fact.journal
        elif isinstance(fact, Raised):
            self.error = fact.error
        elif isinstance(fact, DeclinedFact):
            self.refusal = fact.reason

    def _moved(self, step: Transition) -> None:
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
    Event.DECLINE: End.DECLINED,
    Event.FAIL: End.FAILED,
    Event.REJECT: End.REJECTED,
}


def _ignore(fact: Any) -> None:
    del fact


class Rehearsal:
    """The innermost middleware of a server that rehearses: its requests are legs of the journal that is set."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.next(None)

    def next(self, journal: Journal | None) -> None:
        """Prepare for a request.

        Args:
            journal: What its call remembers; None for a new call.
        """
        self.journal = journal
        self.rehearsed = Rehearsed()
        """What became of the last request."""
        # Another one for each leg: what a leg has claimed is nothing to the next, which may be an earlier one.
        self._effects.use(
            Effects(MemoryLedger(), Tracers((self.rehearsed,)), InMemorySubscriptionBus(), rehearsal=self.rehearsed)
        )

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        request = asking_request()
        if request is not None:
            request.journal = self.journal
        return await call_next(ctx)


@contextmanager
def rehearsing(server: Server[Any]) -> Generator[Rehearsal]:
    """Have all requests of a server rehearsed. It must not serve anybody else meanwhile."""
    with server.effects.kept():
        rehearsal = Rehearsal(server.effects)
        server.middleware.append(rehearsal)
        try:
            yield rehearsal
        finally:
            server.middleware.remove(rehearsal)
