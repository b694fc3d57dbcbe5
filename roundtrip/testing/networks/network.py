"""What a user's requests go through on their way to a server, one leg at a time: networks, and how they are stacked."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roundtrip.client.legs import LegRequest
from roundtrip.testing.networks.deliveries import LegDelivery
from roundtrip.testing.networks.fleet import NetworkFleet

__all__ = ["Carry", "Network", "Route", "stacked"]

# A failing test shows where the test failed, and not the way through here.
__tracebackhide__ = True

Carry = Callable[[LegRequest], Awaitable[LegDelivery]]
"""Takes a leg on its way, and brings what came back."""


@dataclass(slots=True, eq=False)
class Route:
    """The way of one call: what a network may use of it."""

    fleet: NetworkFleet
    onward: Carry
    """Takes a leg through the networks further in, to the server."""
    carried: list[LegDelivery]
    """What this network has brought back of the call so far, in order."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """For the network to keep what it must remember of this call."""

    @property
    def number(self) -> int:
        """Which leg of the call is being carried, from 1."""
        return len(self.carried) + 1

    async def aside(self, leg: LegRequest) -> LegDelivery:
        """Send what is not the user's straight to the server that legs go to now, past the networks further in."""
        return await self.fleet.send(leg)

    def before(self, leg: LegRequest) -> LegDelivery | None:
        """The delivery that brought the questions and the token that a leg answers; None for the first of a call."""
        history = self.history(leg)
        return history[-1] if history else None

    def history(self, leg: LegRequest) -> list[LegDelivery]:
        """The deliveries that led to a leg, the first of its call first; what was sent besides them is not in it."""
        history: list[LegDelivery] = []
        # From the latest on, as a server may give the same token twice.
        for earlier in reversed(self.carried):
            if leg.state is None and leg.answers is None:
                break
            if earlier.asks is not None and earlier.asks.request_state == leg.state:
                history.insert(0, earlier)
                leg = earlier.leg
        return history


class Network(Protocol):
    """Something between a user and a server, on the retry era.

    One object serves all calls: what is of one, belongs on its route.
    """

    @property
    def name(self) -> str:
        """What tests that run under it are called by."""
        ...

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Bring a leg to the server with `route.onward`, as often and in what shape it likes, and give one answer back.

        Raises:
            Breach: The server did what it must not.
            Inapplicable: It needs something that it was not given.
        """
        ...


def stacked(networks: Sequence[Network], fleet: NetworkFleet) -> Carry:
    """Networks as one, the first outermost."""
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
