"""A body's question that changes on each leg: reported by the third leg, and never mistaken for a deploy."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from roundtrip import Context, Event, Server
from roundtrip.testing import LegByLeg, Restart, Steps, User
from tests.interaction.bodies.shops import shop
from tests.kit.players import text_of
from tests.kit.shops import Choice

pytestmark = pytest.mark.anyio


def stamps() -> Callable[[], str]:
    ticks = itertools.count(1)
    return lambda: f"It is {next(ticks)} o'clock. Sure?"


async def test_a_step_cures_it() -> None:
    clock = stamps()

    async def body(ctx: Context[Any, Any]) -> str:
        return (await ctx.ask_outcome("sure", await ctx.step("clock", clock), Choice)).action

    call = await User(lambda: shop(body), {"sure": {"ok": True}}, network=Restart()).call("order")
    assert call.text == "accept"


@pytest.mark.parametrize("named", [True, False])
async def test_alternating_builds_are_not_volatile(named: bool) -> None:
    def build(number: int) -> Server[Any]:
        async def body(ctx: Context[Any, Any]) -> str:
            left = await ctx.elicit(f"Left, says build {number}?", Choice, key="left" if named else None)
            right = await ctx.elicit(f"Right, says build {number}?", Choice, key="right" if named else None)
            return f"{left.action} {right.action}"

        return shop(body, build=str(number))

    hopper = LegByLeg([build(1), build(2)])
    result = await hopper.leg("order")
    legs = 1
    while result.result_type == "input_required" and legs < 8:
        replies = {key: {"ok": True} for key in hopper.questions}
        result = await hopper.leg("order", answers=replies, state=hopper.token)
        legs += 1
    assert text_of(result) == "accept accept"


@pytest.mark.parametrize("key", ["sure", None])
async def test_timestamp_in_a_question_is_reported_with_its_cure(key: str | None) -> None:
    clock, trace = stamps(), Steps()

    async def body(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit(clock(), Choice, key=key)).action

    call = await User(shop(body, trace=trace), {re.compile("Sure"): {"ok": True}}).call("order")
    assert call.text.startswith("Error executing tool order: question ")
    assert "has another message each time" in call.text
    assert "ctx.step()" in call.text
    assert len(call.questions) == 2
    assert trace.steps[-1].leg == 3
    assert trace.events[-1] is Event.FAIL
