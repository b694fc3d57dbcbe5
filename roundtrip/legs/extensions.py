"""The interface between legs and a server's features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from roundtrip.legs.functions import LegFeature

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import InputResponse

    from roundtrip.engine.leg import Leg, LegEnd
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
    """False if the body may run without the engine, and `complete` need not be called."""
    may_store = False
    """True if the leg may end with a stored call."""
    opens = False
    """True if `open` and `finish` must be called."""

    async def open(self) -> LegEnd | None:
        """Prepare the leg. Return the leg's end if the leg must not begin.

        Raises:
            RoundtripError: The leg must not begin.
        """

    async def finish(self, end: LegEnd | None) -> None:
        """Take note of how the leg has ended; None for an error.

        Raises:
            RoundtripError: The client must not receive the leg's end.
        """

    def complete(self, leg: Leg) -> None:
        """Add the feature's values to the `Leg` that the engine serves."""

    def around(self, execute: Execute) -> Execute:
        """Wrap the function that runs the body."""
        return execute


@dataclass(slots=True, eq=False, repr=False)
class LegNotes:
    """What a leg's features and its runner note until the leg has ended."""

    facts: list[Any] = field(default_factory=list[Any])
    """Facts about the leg's opening, for the tracers."""
    intent_key: str | None = None
    """The key that other systems may receive, if calls with the same intent share one body."""
    asks_between_legs: bool = False
    """True if a live client is asked between this leg and the next one."""
    written: Journal | None = None
    """The journal with which the leg has ended."""


class OpenLeg:
    """A leg at its start, when features join it."""

    function: AskingFunction
    arguments: Mapping[str, Any]
    incoming: Incoming
    record: RequestRecord | None
    """The record of the client's request; None if no client request called this function directly."""
    stored: StoredLeg | None
    """The stored leg, if the call is stored."""
    hands_over: bool
    """True if the leg ends before the body, because the call is stored and its body runs in a task."""
    binds_tickets: bool
    """False if no user receives the leg's tickets. Then the tickets need not be bound to a user."""
    call: Call
    journal: Journal | None
    responses: Mapping[str, InputResponse | None] | None
    """The answers that came with the request, if the leg continues a call."""
    notes: LegNotes
    born: float
    end: float
    """The time after which no leg of the call is accepted."""

    @property
    def parts(self) -> Parts:
        """Return the server's keys, limits and effects."""
        raise NotImplementedError

    @property
    def request(self) -> ServerRequestContext[Any, Any] | None:
        """Return the client's request, even if another function called this one."""
        raise NotImplementedError

    @property
    def in_retry_era(self) -> bool:
        """Return True if the request belongs to the retry era."""
        raise NotImplementedError

    @property
    def channels(self) -> Channels | None:
        """Return the channels for the leg's questions; None if the client's forms are the only channel."""
        raise NotImplementedError

    def principal(self) -> str | None:
        """Return the caller's principal."""
        raise NotImplementedError

    def make_context(self) -> Any:
        """Return a context that cannot ask."""
        raise NotImplementedError

    def adopt(self, journal: Journal | None, responses: Mapping[str, InputResponse | None]) -> None:
        """Continue the call that a journal describes. None keeps the leg's new call."""
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
