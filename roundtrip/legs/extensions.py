"""The seam between legs and a server's features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from roundtrip.legs.functions import LegFeature

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from roundtrip.engine.leg import Leg
    from roundtrip.engine.ports import Channels
    from roundtrip.engine.silent_body import Execute
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.legs.requests import Incoming, RequestRecord, StoredLeg
    from roundtrip.machine.call import Call
    from roundtrip.machine.journal import Journal


class LegPart:
    """One feature's part in one leg. A feature overrides what it needs."""

    needs_engine = False
    """False if the body may run without the engine."""
    may_store = False
    """True if the leg may end with a stored call."""
    replaces_body = False
    """True if something else may run instead of the body."""

    def complete(self, leg: Leg) -> None:
        """Add to the values with which the engine serves the leg."""

    def around(self, execute: Execute) -> Execute:
        """Wrap the function that runs the body."""
        return execute


class OpenLeg:
    """Leg at its start, when features join it."""

    parts: Parts
    """The server's parts."""
    function: AskingFunction
    arguments: Mapping[str, Any]
    incoming: Incoming
    record: RequestRecord | None
    """The request's record, if the client asked for this leg."""
    request: ServerRequestContext[Any, Any] | None
    """The request, even if another function called this one."""
    in_retry_era: bool
    stored: StoredLeg | None
    """The stored leg, if the call is stored."""
    hands_over: bool
    """True if the leg ends before the body, and its call is stored."""
    channels: Channels | None
    binds_tickets: bool
    """False if no user receives its tickets, so that they need not be bound to one."""
    call: Call
    journal: Journal | None
    born: float
    end: float
    """The time after which no leg of the call can arrive."""

    def principal(self) -> str | None:
        """Return the caller."""
        raise NotImplementedError


class LegExtension(LegFeature):
    """Feature that takes part in legs. A feature overrides what it needs."""

    def concerns(self, function: AskingFunction) -> bool:
        """Return True if the feature may take part in a function's legs; called once, when the function is registered.

        Raises:
            InvalidSignature: The server cannot serve the function.
        """
        return True

    def join(self, leg: OpenLeg) -> LegPart | None:
        """Return the feature's part in a leg, if it has one.

        Raises:
            MCPError: The leg must not begin.
        """
        return None


CountGuessOfLeg = Callable[[OpenLeg, str, Any, int], Awaitable[bool]]
"""Counts an answer in a leg, given its question's name and the most guesses; returns False if it is one too many."""


class LifespanWorker(Protocol):
    """Work beside a server's legs, on an event loop."""

    def start(self) -> None:
        """Begin, unless it already runs on this event loop."""
        ...

    async def stop(self) -> None:
        """End on this event loop."""
        ...
