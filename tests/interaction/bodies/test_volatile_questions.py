"""A body's question that changes whenever it is asked: reported by the third leg, and never mistaken for a deploy."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from roundtrip import Context, Elicit, Event, Server
from tests.interaction.bodies.shops import shop
from tests.players import Era, Hopper, Person, Trace, connect, text_of

pytestmark = pytest.mark.anyio


class Choice(BaseModel):
    ok: bool


def stamps() -> Callable[[], str]:
    ticks = itertools.count(1)
    return lambda: f"It is {next(ticks)} o'clock. Sure?"


def keyed(message: Callable[[], str], **options: Any) -> Server[Any]:
    async def body(ctx: Context[Any, Any]) -> str:
        return (await ctx.ask("sure", Elicit(message(), Choice))).action

    return shop(body, **options)


async def test_a_timestamp_in_a_named_question_is_reported_by_the_third_leg_with_the_cure() -> None:
    trace = Trace()
    person = Person(answer=lambda params: {"ok": True})
    async with connect(keyed(stamps(), trace=trace), Era.RETRY, person) as client:
        result = await client.call_tool("order")
    assert text_of(result).startswith("Error executing tool order: question 'sure' has another message each time")
    assert "ctx.step()" in text_of(result)
    assert len(person.asked) == 2
    assert trace.steps[-1].leg == 3
    assert trace.events[-1] is Event.FAIL


async def test_a_timestamp_in_a_question_without_a_name_is_reported_by_the_third_leg_with_the_cure() -> None:
    clock = stamps()

    async def body(ctx: Context[Any, Any]) -> str:
        return (await ctx.elicit(clock(), Choice)).action

    trace = Trace()
    person = Person(answer=lambda params: {"ok": True})
    async with connect(shop(body, trace=trace), Era.RETRY, person) as client:
        result = await client.call_tool("order")
    assert "has another message each time it is asked" in text_of(result)
    assert "ctx.step()" in text_of(result)
    assert len(person.asked) == 2
    assert trace.steps[-1].leg == 3


async def test_a_step_cures_it() -> None:
    clock = stamps()

    async def body(ctx: Context[Any, Any]) -> str:
        return (await ctx.ask("sure", Elicit(await ctx.step("clock", clock), Choice))).action

    assert text_of(await Hopper(lambda: shop(body)).play("order", None, [{"sure": {"ok": True}}])) == "accept"


async def test_the_live_era_asks_it_once(era: Era) -> None:
    person = Person(answer=lambda params: {"ok": True})
    async with connect(keyed(stamps()), Era.LIVE, person) as client:
        assert text_of(await client.call_tool("order")) == "accept"
    assert len(person.asked) == 1


async def test_a_question_that_changes_because_another_answer_came_in_is_not_volatile() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("left", Elicit("Left?", int), unwrap=True)
        again = await ctx.ask_all({"right": Elicit("Right?", int), "sum": Elicit(said[0], Choice)})
        return again["sum"].action

    said = ["Sum 1?"]
    hopper = Hopper(lambda: shop(body, build="1"))
    await hopper.leg("order")
    await hopper.leg("order", answers={"left": {"value": 1}}, state=hopper.token)
    said[0] = "Sum 2?"
    # One answer is lost to the change, and another came in.
    await hopper.leg("order", answers={"right": {"value": 1}, "sum": {"ok": True}}, state=hopper.token)
    said[0] = "Sum 3?"
    await hopper.leg("order", answers={"sum": {"ok": True}}, state=hopper.token)
    assert list(hopper.questions) == ["sum"]
    assert text_of(await hopper.leg("order", answers={"sum": {"ok": True}}, state=hopper.token)) == "accept"


@pytest.mark.parametrize("named", [True, False])
async def test_a_second_build_that_serves_every_other_leg_is_not_volatile(named: bool) -> None:
    def build(number: int) -> Server[Any]:
        async def body(ctx: Context[Any, Any]) -> str:
            left = await ctx.elicit(f"Left, says build {number}?", Choice, key="left" if named else None)
            right = await ctx.elicit(f"Right, says build {number}?", Choice, key="right" if named else None)
            return f"{left.action} {right.action}"

        return shop(body, build=str(number))

    hopper = Hopper([build(1), build(2)])
    result = await hopper.leg("order")
    legs = 1
    while result.result_type == "input_required" and legs < 8:
        replies = {key: {"ok": True} for key in hopper.questions}
        result = await hopper.leg("order", answers=replies, state=hopper.token)
        legs += 1
    assert text_of(result) == "accept accept"
