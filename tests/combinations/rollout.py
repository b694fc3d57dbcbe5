"""A rollout of a build with a shorter `max_age`, during which the last request of a call arrives again, late."""

from typing import Final

from roundtrip.client.legs import LegRequest
from roundtrip.testing.clocks import Clock
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.networks.network import Breach, LegDelivery, Route

__all__ = ["SHORT", "Rollout"]

SHORT: Final = 60.0
"""Seconds that a call of the new build may live."""
_LATE: Final = 250.0
_TIMES: Final = 2


class Rollout:
    """Network on which each request reaches the new build and then the old one, whose tokens the client uses."""

    name = "rollout"

    def __init__(self, make: Make, clock: Clock) -> None:
        self._make = make
        self._clock = clock

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send a leg, and after the end of the call send it again from time to time."""
        await route.fleet.deploy(self._make)
        delivery = await route.onward(leg) if leg.state is not None else None
        await route.fleet.start()
        if delivery is None or delivery.final is None:
            return await route.onward(leg)
        for _ in range(_TIMES):
            self._clock.advance(_LATE)
            late = await route.onward(leg)
            if late.final != delivery.final:
                raise Breach(f"a late duplicate was answered with {late.told} instead of {delivery.told}")
        return delivery
