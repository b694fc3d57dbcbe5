"""Three real processes that share a key and nothing else; one is killed and comes back as another build."""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip.testing import Conversation, Hop, LegByLeg, LegDelivery, LegRequest, Route, User
from tests.kit.hosts import WAIT, HttpProcess
from tests.kit.instances import ROUNDS, next_shop, shop

pytestmark = pytest.mark.anyio
ARGUMENTS = {"title": "Dune"}


@pytest.fixture(scope="module")
def fleet() -> Generator[list[HttpProcess]]:
    """Run three instances whose clocks are half a minute apart."""
    with ExitStack() as stack:
        instances = [stack.enter_context(HttpProcess()) for _ in range(3)]
        for instance, skew in zip(instances, (0.0, 30.0, -30.0), strict=True):
            instance.start(shop, skew=skew)
        yield instances


class Tour:
    """Route on which each leg goes to the next of some instances."""

    name = "tour"

    def __init__(self, *stops: HttpProcess) -> None:
        self._stops = [stop.url for stop in stops]

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        await route.fleet.go_to(self._stops[route.number - 1])
        return await route.onward(leg)


def facts(call: Conversation) -> dict[str, Any]:
    assert not call.is_error
    return facts_of(call.result)


def facts_of(result: Any) -> dict[str, Any]:
    assert isinstance(result, CallToolResult)
    assert not result.is_error
    assert result.structured_content is not None
    return result.structured_content


async def test_every_leg_of_a_call_is_served_by_another_process(fleet: list[HttpProcess]) -> None:
    first, second, third = fleet
    with anyio.fail_after(WAIT):
        tour = Tour(first, second, third, second)
        end = facts(await User(first.url, ROUNDS, network=tour).call("order", ARGUMENTS))
    assert end == {
        "title": "Dune",
        "price": first.pid,
        "copies": 3,
        "wrapped": False,
        "served_by": second.pid,
    }


async def test_clocks_half_a_minute_apart_lose_no_call(fleet: list[HttpProcess]) -> None:
    _, fast, slow = fleet
    with anyio.fail_after(WAIT):
        for order in ((fast, slow), (slow, fast)):
            end = facts(await User([one.url for one in order], ROUNDS, network=Hop()).call("order", ARGUMENTS))
            assert end["price"] == order[0].pid


async def test_call_survives_its_process_and_a_new_build(
    fleet: list[HttpProcess],
) -> None:
    first, second, third = fleet
    began_at = first.pid
    hopper = LegByLeg([first.url, second.url, first.url, third.url])
    with anyio.fail_after(2 * WAIT):
        await hopper.leg("order", ARGUMENTS)
        first.kill()
        await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
        first.start(next_shop)
        await hopper.leg("order", ARGUMENTS, answers=ROUNDS[1], state=hopper.token)
        assert list(hopper.questions) == ["wrap"]
        on_the_old = facts_of(await hopper.leg("order", ARGUMENTS, answers=ROUNDS[2], state=hopper.token))
        on_the_new = facts_of(
            await LegByLeg([first.url]).leg("order", ARGUMENTS, answers=ROUNDS[2], state=hopper.token)
        )
    assert first.pid != began_at
    assert on_the_old["price"] == on_the_new["price"] == began_at
    assert on_the_new["discount"] == 5
    assert "discount" not in on_the_old
