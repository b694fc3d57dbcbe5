"""A question that changes whenever it is asked: reported by name with its cure, and never mistaken for a deploy."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from roundtrip import Context, Elicit, Event, Resolve, Server
from roundtrip.testing import Era, LegByLeg, Restart, Steps, User
from tests.interaction.bodies.shops import shop
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice

pytestmark = pytest.mark.anyio


def resolving(message: Callable[[], str], *, build: str = "1", trace: Steps | None = None, **ask: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], build=build, trace=trace)

    async def confirm() -> Elicit[Choice]:
        return Elicit(message(), Choice, **ask)

    @server.tool()
    async def order(choice: Annotated[Choice, Resolve(confirm)]) -> bool:
        return choice.ok

    return server


def stamps(start: int = 1) -> Callable[[], str]:
    ticks = itertools.count(start)
    return lambda: f"It is {next(ticks)} o'clock. Sure?"


async def test_timestamp_in_a_question_ends_the_call_with_advice() -> None:
    trace = Steps()
    call = await User(resolving(stamps(), trace=trace), {"confirm": {"ok": True}}).call("order")
    assert call.is_error
    assert call.text.startswith("Error executing tool order: question 'confirm' has a different message each time")
    assert "remember=True" in call.text
    assert "volatile_ok=True" in call.text
    # Two answers were lost before it was sure; a limit of the client's on rounds was not what ended it.
    assert len(call.questions) == 2
    assert trace.events[-1] is Event.FAIL
    assert trace.asked == [{"confirm": "new"}, {"confirm": "volatile"}]


async def test_live_era_asks_a_volatile_question_once() -> None:
    call = await User(resolving(stamps()), {"confirm": {"ok": True}}, era=Era.LIVE).call("order")
    assert call.text == "true"
    assert len(call.questions) == 1


async def test_a_question_that_settles_is_answered() -> None:
    said: Iterator[str] = itertools.chain(["first wording"], itertools.repeat("final wording"))
    call = await User(resolving(lambda: next(said)), {"confirm": [{"ok": True}] * 2}).call("order")
    assert call.text == "true"


async def test_answer_seen_by_another_build_still_counts_at_home() -> None:
    old, new = resolving(lambda: "Sure?", build="1"), resolving(lambda: "Are you sure?", build="2")
    hopper = LegByLeg([old, new])
    await hopper.leg("order")
    await hopper.leg("order", answers={"confirm": {"ok": True}}, state=hopper.token)
    assert list(hopper.questions) == ["confirm"]
    assert text_of(await hopper.leg("order", answers={}, state=hopper.token)) == "true"


async def test_answers_that_are_late_do_not_make_a_question_volatile() -> None:
    """Shows S7."""
    hopper = LegByLeg([resolving(stamps())])
    await hopper.leg("order")
    for _ in range(4):
        result = await hopper.leg("order", answers={}, state=hopper.token)
        assert result.result_type == "input_required"


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
            left = await ctx.elicit(f"Left, says build {number}?", Choice, name="left" if named else None)
            right = await ctx.elicit(f"Right, says build {number}?", Choice, name="right" if named else None)
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
        return (await ctx.elicit(clock(), Choice, name=key)).action

    call = await User(shop(body, trace=trace), {re.compile("Sure"): {"ok": True}}).call("order")
    assert call.text.startswith("Error executing tool order: question ")
    assert "has a different message each time" in call.text
    assert "ctx.step()" in call.text
    assert len(call.questions) == 2
    assert trace.transitions[-1].leg == 3
    assert trace.events[-1] is Event.FAIL
