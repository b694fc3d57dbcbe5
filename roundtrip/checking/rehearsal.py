"""Rehearsals: legs that stop before the body, to show which questions the current build asks.

A rehearsal runs all code that comes before the body: middleware, visibility gates, confirmations, resolvers and context
managers. The context managers exit as they do after a failure. A rehearsal can also run the body, either to its end or
to the first step that has no result yet. Each leg has a separate ledger, tracers and bus, so it has no effects outside
the application. A leg receives its journal and approval decisions directly, without a token.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel
from typing_extensions import override

from roundtrip.approvals.markers import ApprovalState
from roundtrip.engine.silent_body import Execute
from roundtrip.errors import RoundtripError
from roundtrip.legs.extensions import LegExtension, LegPart, OpenLeg
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.parts import Effects
from roundtrip.legs.requests import asking_request
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import StepBegan, Watch
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.attach import Attached
from roundtrip.tools.promises import OncePolicy
from roundtrip.trace.writing.tracers import Tracers
from roundtrip.tracing import Beginning, DeclinedFact, Raised, TokenRejection, Unfailing, Wrote

Bodies = Literal["stop", "repeat", "to_step", "run"]
"""Where to end a leg that reaches its body: before the body, at the first step without a result, or after the body.

`repeat` acts like `to_step`, but is for a leg that has run before. `to_step` does not run a body that must run only
once.
"""


class End(Enum):
    """A rehearsed leg's result."""

    ASKS = "asks"
    BODY = "body"
    """The body would run now."""
    STEP = "step"
    """A body step would run now."""
    COMPLETED = "completed"
    DECLINED = "declined"
    """The user's answer ended the call."""
    FAILED = "failed"
    REJECTED = "rejected"
    """The call was rejected, because its client cannot be asked."""
    UNREACHED = "unreached"
    """The request did not reach the called function."""


class _BodyReached(MCPError):
    """Raised to end a leg before its body begins. This is an `MCPError`, because any other exception would be
    converted.
    """

    def __init__(self) -> None:
        super().__init__(code=INTERNAL_ERROR, message="this is a rehearsal; the body does not run")


class _StepReached(BaseException):
    """Raised to end a leg before a step. This is not an `Exception`, because the author's code around the step could
    catch an `Exception`.
    """


@dataclass(slots=True)
class RehearsedLeg(Unfailing):
    """Tracer that observes one leg, and contains the leg's result.

    The tracer ends the leg by raising an exception, so it must not be wrapped in a guard that catches exceptions.
    """

    end: End = End.UNREACHED
    questions: tuple[PendingQuestion, ...] = ()
    approvals: tuple[PendingQuestion, ...] = ()
    """The approvals for which the call would now wait."""
    journal: Journal | None = None
    """The journal for the next leg."""
    reason: str = ""
    """Why the leg ended, if it asked no questions and did not reach the body."""
    called: str | None = None
    """The inner function that was called while parameters were filled. Its body was reached but did not run."""
    step: str = ""
    """The step that would run."""
    is_withheld: bool = False
    """True if the body can ask questions but was not started, because it must run only once."""
    result: BaseModel | None = None
    """The result that the client receives."""
    hidden_item: str | None = None
    """An item that was served although it is hidden from this request."""
    decided: Mapping[str, ApprovalState] = field(default_factory=dict[str, ApprovalState])
    """The leg's approval decisions, by approval name."""
    bodies: Bodies = "stop"
    _declined: bool = False

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the leg, but not any calls within it."""
        return self._watch if beginning.within is None else lambda fact: None

    def reject(self, rejection: TokenRejection) -> None:
        """Ignore the rejection, because a rehearsal does not use tokens."""

    def stop(self, function: AskingFunction, *, outermost: bool) -> None:
        """End a leg before its body, unless the body may run to its end or to its first step without a result.

        Raises:
            MCPError: The rehearsed leg reached its body.
            RoundtripError: A call within the leg reached its body.
        """
        asks, once = bool(function.contexts), function.policy(OncePolicy) is not None
        may_run = self.bodies == "repeat" or (self.bodies == "to_step" and not once)
        # With `repeat` or `to_step`, do not run a body that cannot ask, because it has no steps at which to stop.
        if self.bodies == "run" or (may_run and outermost and asks):
            return
        if not outermost:
            self.called = function.owner
            raise RoundtripError(f"{function.owner} was called during a rehearsal, so its body does not run")
        self.end, self.is_withheld = End.BODY, asks and once
        raise _BodyReached

    def let_in(self, owner: str) -> None:
        """Record an item that was served although it is hidden from this request."""
        self.hidden_item = owner

    def _watch(self, fact: Any) -> None:
        if isinstance(fact, Transition):
            # If the rehearsal stopped the leg at the body or at a step, a failure is only a consequence of that stop.
            if self.end not in (End.BODY, End.STEP):
                self.end = _END_BY_EVENT.get(fact.event, self.end)
                if fact.event is Event.ASK:
                    self.questions = tuple(fact.detail.get("questions", ()))
                    self.approvals = tuple(fact.detail.get("external", ()))
        elif isinstance(fact, StepBegan) and self.bodies != "run":
            self.end, self.step = End.STEP, self.step or fact.key
            raise _StepReached
        elif isinstance(fact, Wrote):
            self.journal = fact.journal
        elif isinstance(fact, Raised) and not self._declined:
            self.reason = f"{type(fact.error).__name__}: {fact.error}"
        elif isinstance(fact, DeclinedFact):
            self.reason, self._declined = fact.reason, True


_END_BY_EVENT: Final = {
    Event.ASK: End.ASKS,
    Event.DECLINE: End.DECLINED,
    Event.FAIL: End.FAILED,
    Event.REJECT: End.REJECTED,
    Event.FINISH: End.COMPLETED,
}


class _BodyStop(LegPart):
    """A leg part that ends the leg before its body."""

    def __init__(self, rehearsed: RehearsedLeg, function: AskingFunction, *, outermost: bool) -> None:
        self._stop = partial(rehearsed.stop, function, outermost=outermost)

    @override
    def around(self, execute: Execute) -> Execute:
        self._stop()
        return execute


class Rehearsal(LegExtension):
    """Innermost middleware of a server during a rehearsal. It gives each request a journal, and stops the request's
    leg.
    """

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.next(None, {})

    def next(self, journal: Journal | None, decisions: Mapping[str, ApprovalState], bodies: Bodies = "stop") -> None:
        """Prepare the next request. If a journal is given, the request continues the call that has this journal and
        these decisions. Otherwise, the request begins a new call.
        """
        self.journal = journal
        self.rehearsed = RehearsedLeg(decided=decisions, bodies=bodies)
        """The last request's result."""
        # Legs are not rehearsed in order, so each leg needs new effects and must not see another leg's claims.
        self._effects.use(Effects(None, Tracers((self.rehearsed,)), InMemorySubscriptionBus(), dry_run=self.rehearsed))

    @override
    def join(self, leg: OpenLeg) -> LegPart:
        # A rehearsal has no authenticated user, and does not show its tickets to any user.
        leg.binds_tickets = False
        return _BodyStop(self.rehearsed, leg.function, outermost=leg.record is not None)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message."""
        request = asking_request()
        if request is not None:
            request.journal = self.journal
        try:
            return await call_next(ctx)
        except (_StepReached, BaseExceptionGroup):
            # If the body uses a task group, the exception arrives inside an exception group.
            if self.rehearsed.end is not End.STEP:
                raise
            raise _BodyReached from None


@contextmanager
def rehearsing(server: Attached) -> Generator[Rehearsal]:
    """Rehearse all requests to a server. The server must not serve other clients during the rehearsal."""
    with server.parts.effects.kept():
        rehearsal = Rehearsal(server.parts.effects)
        server.low_level.middleware.append(rehearsal)
        server.legs.extensions.insert(0, rehearsal)
        try:
            yield rehearsal
        finally:
            server.legs.extensions.remove(rehearsal)
            server.low_level.middleware.remove(rehearsal)
