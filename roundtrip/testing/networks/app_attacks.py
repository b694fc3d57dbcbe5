"""Attacks on a call's app, which networks send beside the honest answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from mcp_types import CallToolResult

from roundtrip.client.legs import LegRequest
from roundtrip.testing.apps import State, payload_in, state_in
from roundtrip.testing.attacks.apps import AppAttack
from roundtrip.testing.attacks.requests import other_arguments
from roundtrip.testing.networks.deliveries import Breach, LegDelivery
from roundtrip.testing.networks.fleet import acting_as
from roundtrip.testing.networks.network import Route

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_STRANGER: Final = "roundtrip.testing: another user"


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """An app's answer on its way to the server."""

    route: Route
    leg: LegRequest
    payload: Mapping[str, Any]

    @classmethod
    def of(cls, leg: LegRequest, route: Route) -> AppAnswer | None:
        """Return the answer that a leg carries; None if no app sent the leg."""
        payloads = (payload_in(one.result) for one in route.carried)
        payload = next((one for one in payloads if one is not None), None)
        if payload is None or leg.arguments.get("ticket") != payload["ticket"] or "answers" not in leg.arguments:
            return None
        return cls(route, leg, payload)

    @property
    def ticket(self) -> str:
        """Return the call's ticket."""
        return self.payload["ticket"]

    @property
    def earlier(self) -> list[AppAnswer]:
        """Return the call's answers that this network has carried."""
        return self.route.notes.setdefault("app answers", [])

    async def carry(self, attacks: Iterable[AppAttack]) -> LegDelivery:
        """Send hostile requests, and then the answer.

        Raises:
            Breach: A hostile request had an effect, or the server's error helps an attacker.
        """
        # A second answer at the same time would also change the call.
        async with self.route.notes.setdefault("attacking", anyio.Lock()):
            if (await self._look()).get("round") == self.leg.arguments["round"]:
                await self.attack(attacks)
            delivery = await self.route.onward(self.leg)
        self.earlier.append(self)
        return delivery

    async def attack(self, attacks: Iterable[AppAttack]) -> None:
        """Send hostile requests. See `carry`."""
        before, errors = await self._look(), dict[str, str]()
        for one in attacks:
            with acting_as(_STRANGER if one.is_foreign else None):
                leg = replace(self.leg, arguments={**self.leg.arguments, **one.arguments})
                delivery = await self.route.aside(leg)
            reply, state = delivery.result, state_in(delivery.result) or {}
            is_rejected = isinstance(reply, CallToolResult) and bool(reply.is_error) and not delivery.crashed
            is_refused = one.opens and (state.get("notice") is not None or bool(state.get("mistakes")))
            if not (is_rejected or is_refused) or await self._look() != before:
                raise Breach(
                    f"an app sent {one.description}, and the server answered with {state or delivery.told}; the "
                    "request must have no effect"
                )
            if not one.opens:
                errors.setdefault(delivery.told, one.description)
        if len(errors) > 1:
            texts = "; ".join(f"{what}: {error}" for error, what in errors.items())
            raise Breach(f"all bad tickets must get the same error, because differences help an attacker; got {texts}")

    async def foreign_tickets(self) -> list[AppAttack]:
        """Return attacks with another user, and with another call's secret."""
        attacks = [AppAttack("a user's ticket from another user", opens=False, is_foreign=True)]
        if self.route.fleet.principal is None:
            attacks = []
        first = self.route.carried[0].leg
        schema = (await self.route.fleet.tools()).get(first.name, {})
        for name, others in other_arguments(first.arguments, schema):
            other = await self.route.aside(replace(first, arguments={**first.arguments, name: others[0]}))
            payload = payload_in(other.result)
            if payload is not None and payload["ticket"] != self.ticket:
                mixed = f"{self.ticket.partition('.')[0]}.{payload['ticket'].partition('.')[2]}"
                return [*attacks, AppAttack("a ticket with another call's secret", {"ticket": mixed}, opens=False)]
        return attacks

    async def _look(self) -> State:
        look = LegRequest(self.payload["tools"]["look"], {"ticket": self.ticket})
        delivery = await self.route.aside(look)
        state = state_in(delivery.result)
        if state is None:
            raise Breach(f"an app looked at its call, and the server answered with {delivery.told}")
        return state
