"""Plain `def` bodies ask with `ctx.blocking`, from a thread that waits."""

from collections import Counter
from typing import Any

import anyio
import pytest

from roundtrip import Context, Elicit, Event
from roundtrip.testing import DECLINE, Era, Restart, Steps, User
from tests.interaction.bodies.shops import LEFT, RIGHT, shop
from tests.kit.hosts import WAIT

pytestmark = pytest.mark.anyio


async def test_a_plain_body_asks_computes_and_asks_together(era: Era) -> None:
    ran: Counter[str] = Counter()

    def price(left: int) -> int:
        ran["price"] += 1
        return left * 100

    def body(ctx: Context[Any, Any]) -> str:
        left = ctx.blocking.ask("left", LEFT)
        cost = ctx.blocking.step("price", price, left)
        answers = ctx.blocking.ask_all_outcomes(
            {"right": Elicit(f"Right, at {cost}?", int), "third": Elicit("Third?", int)}
        )
        return f"{left} {cost} {answers['right'].data} {answers['third'].action}"

    trace = Steps()
    with anyio.fail_after(WAIT):
        call = await User(
            shop(body, trace=trace), {"left": {"value": 1}, "right": {"value": 2}, "third": DECLINE}, era=era
        ).call("order")
        assert call.text == "1 100 2 decline"
    assert call.asked == ["Left?", "Right, at 100?", "Third?"]
    assert ran == {"price": 1}
    assert trace.asked == [{"left": "new"}, {"right": "new", "third": "new"}]


async def test_a_plain_body_is_resumed_on_another_server() -> None:
    def body(ctx: Context[Any, Any]) -> int:
        try:
            return ctx.blocking.ask("left", LEFT) + ctx.blocking.ask("right", RIGHT)
        except Exception:  # noqa: BLE001 - as careful code does
            return -1

    call = await User(lambda: shop(body), {"left": 1, "right": 2}, network=Restart()).call("order")
    assert call.text == "3"


async def test_a_plain_body_that_is_declined_ends(era: Era) -> None:
    trace = Steps()

    def body(ctx: Context[Any, Any]) -> int:
        return ctx.blocking.ask("left", LEFT)

    result = await User(shop(body, trace=trace), {"left": DECLINE}, era=era).call("order")
    assert result.text == "Error executing tool order: The user declined the question 'left'"
    assert trace.events[-1] is Event.DECLINE
