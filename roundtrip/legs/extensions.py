"""The seam between legs and the features of a server: how a feature takes part in a leg, and what a leg knows of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import InputResponse

    from roundtrip.engine.claim import Claim
    from roundtrip.engine.leg import Leg
    from roundtrip.engine.silent_body import Execute
    from roundtrip.engine.teardown import TeardownStack
    from roundtrip.legs.call_info import TaskInfo
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.runner import ServedLeg
    from roundtrip.machine.call import Call
    from roundtrip.machine.journal import Journal, Limits
    from roundtrip.machine.pins import Pinner
    from roundtrip.questions.outcomes import Outcome
    from roundtrip.resolvers.plan import Plan
    from roundtrip.threads.leg_threads import LegThreads


class LegPart:
    """Part of one feature in one leg. A feature overrides what it needs."""

    needs_engine = False
    """False if the body may run without the engine."""
    may_store = False
    """True if the leg may end with a stored call."""

    def complete(self, leg: Leg) -> None:
        """Add to the values with which the engine serves the leg."""

    def around(self, execute: Execute) -> Execute:
        """Return what runs the body, given what runs it without this feature."""
        return execute


class LegExtension:
    """Feature that takes part in legs. A feature overrides what it needs."""

    leaves_threads = False
    """True if a leg whose time is over leaves its threads behind."""

    def concerns(self, function: AskingFunction) -> bool:
        """Return True if the feature may take part in legs of a function; called once, when it is registered.

        Raises:
            InvalidSignature: The server cannot serve the function.
        """
        return True

    def join(self, leg: ServedLeg) -> LegPart | None:
        """Return the part of the feature in a leg, if it has one.

        Raises:
            MCPError: The leg must not begin.
        """
        return None


CountGuess = Callable[["ServedLeg", str, Any, int], Awaitable[bool]]
"""Counts an answer to a question of a leg, given its name and the most guesses; returns False if it is one too many."""


class LifespanWorker(Protocol):
    """Work beside the legs of a server, on an event loop."""

    def start(self) -> None:
        """Begin, unless it runs on this event loop already."""
        ...

    async def stop(self) -> None:
        """End on this event loop."""
        ...


class StoredLeg(Protocol):
    """Leg of a stored call, which no client sent."""

    tool: str
    principal: str | None
    user: str | None
    """The principal, if it names a user and not only a client."""
    expires: float
    clock: Callable[[], float]
    """Returns the time of the store, by which the call expires."""
    takes_over: bool
    """True if the worker that had the call before stopped renewing its lease."""
    request: ServerRequestContext[Any, Any] | None
    """The request of the client that runs the leg, if one does."""
    responses: Mapping[str, InputResponse | None]
    signals: Mapping[str, Any]
    by_model: Collection[str]
    """The names of the questions whose last answer a model gave."""
    pinner: Pinner
    info: TaskInfo
    written: Journal | None
    """The journal with which the leg ends."""

    @property
    def claim(self) -> Claim:
        """Return the worker's lease on the call."""
        ...

    def limits(self, now: float) -> Limits:
        """Return the time limits of the leg."""
        ...

    def call(self) -> Call:
        """Return the call as it was stored."""
        ...


class OpenedGates(Protocol):
    """Visibility gates that opened for a request, and what their functions found."""

    @property
    def known(self) -> Mapping[Hashable, Outcome]:
        """Return the values for a leg."""
        ...

    @property
    def managers(self) -> TeardownStack | None:
        """Return the context managers to leave when the item has been served."""
        ...

    def hand_over(self, threads: LegThreads, plan: Plan) -> None:
        """Run functions of a leg in the threads of those whose values they share."""
        ...


class LegRehearsal(Protocol):
    """Rehearsal of one leg, which stops before its body."""

    decided: Mapping[str, Any]
    """The decisions of persons who are no clients, by the names of their questions."""

    def stop(self, function: AskingFunction, *, outermost: bool) -> None:
        """End a leg before its body, unless the body may run here."""
        ...

    def let_in(self, owner: str) -> None:
        """Note an item that was served although the request cannot see it."""
        ...
