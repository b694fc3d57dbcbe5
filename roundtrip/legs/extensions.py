"""The interface between legs and a server's features."""

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
    """One feature's part in one leg. A feature overrides the methods and attributes that it needs."""

    needs_engine = False
    """False if the body may run without the engine."""
    may_store = False
    """True if the leg may end with a stored call."""
    replaces_body = False
    """True if another function may run instead of the body."""

    def complete(self, leg: Leg) -> None:
        """Add the feature's values to the `Leg` that the engine serves."""

    def around(self, execute: Execute) -> Execute:
        """Wrap the function that runs the body."""
        return execute


class OpenLeg:
    """A leg at its start, when features join it."""

    parts: Parts
    """The server's keys, limits and effects."""
    function: AskingFunction
    arguments: Mapping[str, Any]
    incoming: Incoming
    record: RequestRecord | None
    """The record of the client's request; None if no client request called this function directly."""
    request: ServerRequestContext[Any, Any] | None
    """The client's request, even if another function called this one."""
    in_retry_era: bool
    stored: StoredLeg | None
    """The stored leg, if the call is stored."""
    hands_over: bool
    """True if the leg ends before the body, because the call is stored and its body runs in a task."""
    channels: Channels | None
    binds_tickets: bool
    """False if no user receives the leg's tickets. Then the tickets need not be bound to a user."""
    call: Call
    journal: Journal | None
    born: float
    end: float
    """The time after which no leg of the call is accepted."""

    def principal(self) -> str | None:
        """Return the caller's principal."""
        raise NotImplementedError


class LegExtension(LegFeature):
    """A feature that takes part in legs. It overrides the methods that it needs."""

    def concerns(self, function: AskingFunction) -> bool:
        """Return True if the feature may take part in a function's legs. This is called once, when the function is
        registered.

        Raises:
            InvalidSignature: The server cannot serve the function.
        """
        return True

    def join(self, leg: OpenLeg) -> LegPart | None:
        """Return the feature's part in a leg; None if the feature does not take part in it.

        Raises:
            MCPError: The leg must not begin.
        """
        return None


CountGuessOfLeg = Callable[[OpenLeg, str, Any, int], Awaitable[bool]]
"""Counts an answer on a leg, given its question's name and the maximum number of guesses.

Returns False if the answer exceeds the maximum.
"""


class LifespanWorker(Protocol):
    """Work that a server does on an event loop in addition to its legs."""

    def start(self) -> None:
        """Start the work, unless it is already running on this event loop."""
        ...

    async def stop(self) -> None:
        """Stop the work on this event loop."""
        ...
