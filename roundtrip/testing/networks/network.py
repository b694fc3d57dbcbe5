"""The interface of networks between users and servers: deliveries of legs, routes of calls, and stacks of networks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult

from roundtrip.client.legs import FinalResult, LegRequest, LegResult
from roundtrip.machine.call import Transition
from roundtrip.testing.question_pages import waiting_call

if TYPE_CHECKING:
    from roundtrip.testing.networks.fleet import NetworkFleet

# A failing test shows its own frames only.
__tracebackhide__ = True


class Breach(AssertionError):
    """A broken rule, which every server must keep on every network."""


class Inapplicable(Exception):
    """A network that does not fit the user or its server; the text names the missing part."""


@dataclass(slots=True, eq=False)
class LegDelivery:
    """A leg that reached a server, and the response."""

    leg: LegRequest
    result: LegResult | None = None
    error: MCPError | None = None
    """The protocol error of the response, if it is one."""
    steps: list[Transition] | None = None
    """The call's transitions during the leg; None if the server reports no facts, as servers of other libraries."""
    bodies: int = 0
    """The number of started bodies, if the server reports facts."""
    crash: BaseException | None = None
    """The unexpected exception that ended the leg, if the server reports facts."""
    computed: list[Any] = field(default_factory=list[Any])
    """Computed values that the token must hide, if the server reports facts."""
    call_id: str = ""
    """The call, if the server reports facts."""
    task_id: str | None = None
    """The task that the call is, or became with this leg."""

    @property
    def asks(self) -> InputRequiredResult | None:
        """Return the questions of the response; None if it has none."""
        return self.result if isinstance(self.result, InputRequiredResult) else None

    @property
    def keys(self) -> set[str]:
        """Return the names of its questions."""
        return set(self.asks.input_requests or {}) if self.asks is not None else set()

    @property
    def final(self) -> FinalResult | None:
        """Return the result of the call; None if the leg did not end it."""
        return None if isinstance(self.result, InputRequiredResult) else self.result

    @property
    def done(self) -> FinalResult | None:
        """Return the successful result of the call; None otherwise, as for a call that waits for its user."""
        final = self.final
        if isinstance(final, CallToolResult) and (final.is_error or waiting_call(final) is not None):
            return None
        return final

    @property
    def crashed(self) -> bool:
        """Return True if the server ended the leg by accident."""
        if self.crash is not None:
            return True
        if self.error is not None:
            return is_internal(self.leg, self.error)
        if isinstance(self.result, CallToolResult) and self.result.is_error and self.steps is None:
            return is_bare_failure(self.leg, "\n".join(getattr(block, "text", "") for block in self.result.content))
        return False

    @property
    def is_rejected(self) -> bool:
        """Return True if the server answered with a protocol error on purpose."""
        return self.error is not None and not self.crashed

    @property
    def told(self) -> str:
        """Return the response in one line."""
        if self.crash is not None:
            return f"the crash {type(self.crash).__name__}: {self.crash}"
        if self.error is not None:
            return f"the error {self.error.code} {self.error.error.message!r}"
        asks = self.asks
        if asks is not None:
            return f"a question ({', '.join(map(repr, asks.input_requests or {})) or 'none, to be tried again'})"
        final = self.final
        if isinstance(final, CallToolResult):
            text = " ".join(getattr(block, "text", f"({block.type})") for block in final.content)
            return f"the {'failure' if final.is_error else 'result'} {text!r}"
        return f"the result {final!r}"


def is_internal(leg: LegRequest, error: MCPError) -> bool:
    """Return True for the protocol error of an unexpected exception."""
    # The deliberate errors of prompts and resources have the same code.
    return error.code == INTERNAL_ERROR and leg.method == "tools/call"


def is_bare_failure(leg: LegRequest, text: str) -> bool:
    """Return True if a failure has the text that the SDK's servers use only for unexpected exceptions."""
    return text == f"Error executing tool {leg.name}"


Carry = Callable[[LegRequest], Awaitable[LegDelivery]]
"""Sends a leg, and returns the delivery."""


@dataclass(slots=True, eq=False)
class Route:
    """One call's way through a network."""

    fleet: "NetworkFleet"
    onward: Carry
    """Sends a leg through the inner networks to the server."""
    carried: list[LegDelivery]
    """The deliveries that this network returned for the call so far, in order."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """The network's own notes about this call."""

    @property
    def number(self) -> int:
        """Return the number of the current leg of the call, from 1."""
        return len(self.carried) + 1

    async def aside(self, leg: LegRequest) -> LegDelivery:
        """Send an extra leg of this network to the current server, past the inner networks."""
        return await self.fleet.send(leg)

    def before(self, leg: LegRequest) -> LegDelivery | None:
        """Return the delivery with the questions and the token that a leg answers; None for a first leg."""
        history = self.history(leg)
        return history[-1] if history else None

    def history(self, leg: LegRequest) -> list[LegDelivery]:
        """Return the deliveries that led to a leg, in order, without other legs of the network."""
        history: list[LegDelivery] = []
        # Backwards, as a server may issue the same token twice.
        for earlier in reversed(self.carried):
            if not leg.continues and leg.answers is None:
                break
            if earlier.asks is not None and leg.follows(earlier.asks):
                history.insert(0, earlier)
                leg = earlier.leg
        return history


class Network(Protocol):
    """A network between a user and a server, in the retry era.

    One object serves all calls. It keeps the notes of a call on the call's route.
    """

    @property
    def name(self) -> str:
        """Return the network's name in the ids of tests."""
        ...

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send a leg with `route.onward`, any number of times and in any form, and return one delivery.

        Raises:
            Breach: The server broke a rule.
            Inapplicable: The user or its server lacks something that the network needs.
        """
        ...


def stacked(networks: Sequence[Network], fleet: "NetworkFleet") -> Carry:
    """Stack networks, the first outermost."""
    carry: Carry = fleet.send
    for network in reversed(networks):
        carry = _through(network, Route(fleet, carry, []))
    return carry


def _through(network: Network, route: Route) -> Carry:
    async def carry(leg: LegRequest) -> LegDelivery:
        delivery = await network.carry(leg, route)
        route.carried.append(delivery)
        return delivery

    return carry
