"""Networks between users and servers: their interface, routes of calls, and stacks of networks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roundtrip.client.legs import LegRequest
from roundtrip.testing.networks.deliveries import LegDelivery
from roundtrip.testing.networks.fleet import NetworkFleet

# A failing test shows its own frames only.
__tracebackhide__ = True


Carry = Callable[[LegRequest], Awaitable[LegDelivery]]
"""Sends a leg, and returns the delivery."""


@dataclass(slots=True, eq=False)
class Route:
    """One call's way through a network."""

    fleet: NetworkFleet
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


def stacked(networks: Sequence[Network], fleet: NetworkFleet) -> Carry:
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
