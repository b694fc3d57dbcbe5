"""Calls that must run once while builds with other clocks replace each other."""

from typing import Annotated

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Elicit, Resolve
from roundtrip.ledger import MemoryLedger
from roundtrip.system import System
from roundtrip.testing import LegByLeg
from roundtrip.testing.clocks import Clock
from tests.interaction.ledger.shops import Shop, paid, text_of

pytestmark = pytest.mark.anyio

TEA = {"what": "tea"}
LONG = {"ttl": 600.0, "max_age": 3600.0}
SHORT = {"ttl": 60.0, "max_age": 60.0}


async def agreed(paid: Annotated[bool, Resolve(paid)]) -> Elicit[bool]:
    return Elicit("Sure?", bool)


class Rollout:
    """Call of a tool with two questions; a test names the build of each leg."""

    def __init__(self, clock: Clock) -> None:
        ledger = MemoryLedger(system=System(time=clock))
        self.ran: list[str] = []
        self._legs: dict[str, LegByLeg] = {}
        for name, limits in (("long", LONG), ("short", SHORT)):
            shop = Shop(ledger, build=name, **limits)
            shop.add(self.order)
            self._legs[name] = LegByLeg(shop)

    async def order(
        self, what: str, paid: Annotated[bool, Resolve(paid)], agreed: Annotated[bool, Resolve(agreed)]
    ) -> str:
        """Order something."""
        self.ran.append(what)
        return f"{what} no. {len(self.ran)}"

    async def begin(self, build: str) -> str:
        """Send the first leg, and return its token."""
        await self._legs[build].leg("order", TEA)
        return self._legs[build].token

    async def pay(self, build: str, token: str) -> str:
        """Send the second leg, and return its token."""
        await self._legs[build].leg("order", TEA, answers={"paid": True}, state=token)
        return self._legs[build].token

    async def agree(self, build: str, token: str) -> str:
        """Send the third leg, and return its result."""
        return text_of(await self._legs[build].leg("order", TEA, answers={"agreed": True}, state=token))


@pytest.fixture
def rollout(clock: Clock) -> Rollout:
    return Rollout(clock)


async def test_a_token_that_the_old_build_minted_again_is_answered(rollout: Rollout, clock: Clock) -> None:
    begun = await rollout.begin("long")
    clock.advance(300)
    # A build with shorter clocks does not end a call sooner.
    token = await rollout.pay("short", begun)
    clock.advance(50)
    # A duplicate of the second request, which was on its way to the old build.
    late = await rollout.pay("long", begun)
    assert await rollout.agree("short", token) == "tea no. 1"
    clock.advance(500)
    assert await rollout.agree("long", late) == "tea no. 1"
    assert rollout.ran == ["tea"]


async def test_no_build_lets_a_call_live_longer_than_it_began(rollout: Rollout, clock: Clock) -> None:
    begun = await rollout.begin("short")
    clock.advance(50)
    late = await rollout.pay("long", begun)
    assert await rollout.agree("short", await rollout.pay("short", begun)) == "tea no. 1"
    clock.advance(9)
    assert await rollout.agree("long", late) == "tea no. 1"
    for seconds in (1, 200):
        clock.advance(seconds)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await rollout.agree("long", late)
    assert rollout.ran == ["tea"]
