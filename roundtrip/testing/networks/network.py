"""Networks between users and servers: the interface, call routes and network stacks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roundtrip.client.legs import LegRequest
from roundtrip.testing.networks.deliveries import LegDelivery
from roundtrip.testing.networks.fleet import NetworkFleet

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True


Carry = Callable[[LegRequest], Awaitable[LegDelivery]]
"""Function that sends a leg and returns the delivery."""


@dataclass(slots=True, eq=False)
class Route:
    """The path that one call takes through a network."""

    fleet: NetworkFleet
    onward: Carry
    """Function that sends a leg through the inner networks to the server."""
    carried: list[LegDelivery]
    """The deliveries that this network has returned for the call, in order."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """The network's notes about this call."""

    @property
    def number(self) -> int:
        """Return the current leg's number, starting at 1."""
        return len(self.carried) + 1

    async def aside(self, leg: LegRequest) -> LegDelivery:
        """Send an extra leg directly to the current server, bypassing the inner networks."""
        return await self.fleet.send(leg)

    def before(self, leg: LegRequest) -> LegDelivery | None:
        """Return the delivery with the questions and the token that a leg answers; None for a first leg."""
        history = self.history(leg)
        return history[-1] if history else None

    def history(self, leg: LegRequest) -> list[LegDelivery]:
        """Return the deliveries that led to a leg, in order. Extra legs that the network sent are left out."""
        history: list[LegDelivery] = []
        # Newest first, because a server may issue the same token twice.
        for earlier in reversed(self.carried):
            if not leg.continues and leg.answers is None:
                break
            if earlier.asks is not None and leg.follows(earlier.asks):
                history.insert(0, earlier)
                leg = earlier.leg
        return history


class Network(Protocol):
    """A network between a user and a server, in the retry era.

    One object serves all calls, and keeps notes about a call in `Route.notes`.
    """

    @property
    def name(self) -> str:
        """Return the network's name, which test ids show."""
        ...

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send a leg with `route.onward`, changed or unchanged and any number of times, and return one delivery.

        Raises:
            Breach: The server broke a rule.
            Inapplicable: The user or its server lacks something that the network needs.
        """
        ...


def stacked(networks: Sequence[Network], fleet: NetworkFleet) -> Carry:
    """Stack networks; the first is the outermost."""
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
