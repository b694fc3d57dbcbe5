"""A question that changes whenever it is asked: reported by name with its cure, and never mistaken for a deploy."""

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from roundtrip import Elicit, Event, Resolve, Server
from roundtrip.testing import Era, LegByLeg, Steps, User
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice

pytestmark = pytest.mark.anyio


def shop(message: Callable[[], str], *, build: str = "1", trace: Steps | None = None, **ask: Any) -> Server[Any]:
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
    call = await User(shop(stamps(), trace=trace), {"confirm": {"ok": True}}).call("order")
    assert call.is_error
    assert call.text.startswith("Error executing tool order: question 'confirm' has another message each time")
    assert "once=True" in call.text
    assert "volatile_ok=True" in call.text
    # Two answers were lost before it was sure; a limit of the client's on rounds was not what ended it.
    assert len(call.questions) == 2
    assert trace.events[-1] is Event.FAIL
    assert trace.asked == [{"confirm": "new"}, {"confirm": "volatile"}]


async def test_live_era_asks_a_volatile_question_once() -> None:
    call = await User(shop(stamps()), {"confirm": {"ok": True}}, era=Era.LIVE).call("order")
    assert call.text == "true"
    assert len(call.questions) == 1


async def test_a_question_that_settles_is_answered() -> None:
    said: Iterator[str] = itertools.chain(["first wording"], itertools.repeat("final wording"))
    call = await User(shop(lambda: next(said)), {"confirm": [{"ok": True}] * 2}).call("order")
    assert call.text == "true"


async def test_answer_seen_by_another_build_still_counts_at_home() -> None:
    old, new = shop(lambda: "Sure?", build="1"), shop(lambda: "Are you sure?", build="2")
    hopper = LegByLeg([old, new])
    await hopper.leg("order")
    await hopper.leg("order", answers={"confirm": {"ok": True}}, state=hopper.token)
    assert list(hopper.questions) == ["confirm"]
    assert text_of(await hopper.leg("order", answers={}, state=hopper.token)) == "true"


async def test_answers_that_are_late_do_not_make_a_question_volatile() -> None:
    """Shows S7."""
    hopper = LegByLeg([shop(stamps())])
    await hopper.leg("order")
    for _ in range(4):
        result = await hopper.leg("order", answers={}, state=hopper.token)
        assert result.result_type == "input_required"
