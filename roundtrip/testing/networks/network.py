"""The network interface, a call's route through a network, and stacks of networks."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roundtrip.client.legs import LegRequest
from roundtrip.testing.networks.deliveries import LegDelivery
from roundtrip.testing.networks.fleet import NetworkFleet

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True


Carry = Callable[[LegRequest], Awaitable[LegDelivery]]
"""A function that sends a leg and returns the delivery."""


@dataclass(slots=True, eq=False)
class Route:
    """One call's route through a network."""

    fleet: NetworkFleet
    onward: Carry
    """A function that sends a leg through the inner networks to the server."""
    carried: list[LegDelivery]
    """The deliveries that this network has returned for the call, in order."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """The network's notes about this call."""

    @property
    def number(self) -> int:
        """Return the current leg's number, starting at 1."""
        return len(self.carried) + 1

    async def aside(self, leg: LegRequest) -> LegDelivery:
        """Send an extra leg directly to the current server. It bypasses the inner networks."""
        return await self.fleet.send(leg)

    def before(self, leg: LegRequest) -> LegDelivery | None:
        """Return the earlier delivery that led to a leg; None for a first leg.

        That delivery's response has the leg's token, and asks the questions that the leg answers.
        """
        history = self.history(leg)
        return history[-1] if history else None

    def history(self, leg: LegRequest) -> list[LegDelivery]:
        """Return the deliveries that led to a leg, in order. Extra legs that the network sent are left out."""
        history: list[LegDelivery] = []
        # Search from the newest delivery, because a server may issue the same token twice.
        for earlier in reversed(self.carried):
            if not leg.continues and leg.answers is None:
                break
            if earlier.asks is not None and leg.follows(earlier.asks):
                history.insert(0, earlier)
                leg = earlier.leg
        return history


class Network(Protocol):
    """A network between a user and a server, in the retry era.

    One network object serves all calls. It keeps its notes about each call in `Route.notes`.
    """

    @property
    def name(self) -> str:
        """Return the network's name, which appears in test ids."""
        ...

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send a leg with `route.onward`, and return one of the deliveries.

        Before that, the network may change the leg. It may send the leg any number of times.

        Raises:
            Breach: The server broke a rule.
            Inapplicable: The network needs something that the user or the server does not have.
        """
        ...


def stacked(networks: Sequence[Network], fleet: NetworkFleet) -> Carry:
    """Stack networks. The first network in the sequence is the outermost."""
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
