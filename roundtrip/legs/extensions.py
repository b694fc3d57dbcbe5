"""The seam between legs and the features of a server."""

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
    """Part of one feature in one leg. A feature overrides what it needs."""

    needs_engine = False
    """False if the body may run without the engine."""
    may_store = False
    """True if the leg may end with a stored call."""
    replaces_body = False
    """True if something else may run in place of the body."""

    def complete(self, leg: Leg) -> None:
        """Add to the values with which the engine serves the leg."""

    def around(self, execute: Execute) -> Execute:
        """Return what runs the body, given what runs it without this feature."""
        return execute


class OpenLeg:
    """Leg that begins, as features see it."""

    parts: Parts
    """The parts of the server."""
    function: AskingFunction
    arguments: Mapping[str, Any]
    incoming: Incoming
    record: RequestRecord | None
    """The record of the request, if the client asked for this leg."""
    request: ServerRequestContext[Any, Any] | None
    """The request, also if another function called this one."""
    in_retry_era: bool
    stored: StoredLeg | None
    """The leg of a stored call, if it is one."""
    hands_over: bool
    """True if it ends before the body, whose call is stored."""
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
        """Return True if the feature may take part in legs of a function; called once, when it is registered.

        Raises:
            InvalidSignature: The server cannot serve the function.
        """
        return True

    def join(self, leg: OpenLeg) -> LegPart | None:
        """Return the part of the feature in a leg, if it has one.

        Raises:
            MCPError: The leg must not begin.
        """
        return None


CountGuessOfLeg = Callable[[OpenLeg, str, Any, int], Awaitable[bool]]
"""Counts an answer to a question of a leg, given its name and the most guesses; returns False if it is one too many."""


class LifespanWorker(Protocol):
    """Work beside the legs of a server, on an event loop."""

    def start(self) -> None:
        """Begin, unless it runs on this event loop already."""
        ...

    async def stop(self) -> None:
        """End on this event loop."""
        ...
