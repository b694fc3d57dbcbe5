"""Answers in bodies: renamed, invalid, declined, in loops."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Event, ListRoots, RoundtripError, State
from roundtrip.testing import CANCEL, DECLINE, Answers, Era, Hop, Steps, User
from roundtrip.testing.scripts import UserAction
from tests.interaction.bodies.shops import LEFT, RIGHT, shop

pytestmark = pytest.mark.anyio


class Copies(BaseModel):
    copies: int = Field(ge=1, le=9)


async def test_a_renamed_question_keeps_the_answers_of_calls_in_flight() -> None:
    async def before(ctx: Context[Any, Any]) -> int:
        return await ctx.ask("left", LEFT) + await ctx.ask("right", RIGHT)

    async def after(ctx: Context[Any, Any]) -> int:
        left = await ctx.ask("port", LEFT, former_names=["larboard", "left"])
        return left + await ctx.ask("starboard", RIGHT, former_names=["right"])

    # One answer is recorded under the old name, the other arrives under it.
    instances = [shop(before), shop(before), shop(after)]
    call = await User(instances, {"left": 1, "right": 2}, network=Hop()).call("order")
    assert call.text == "3"
    assert len(call.rounds) == 2


async def test_only_the_invalid_answer_is_asked_again_with_its_reason(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        answers = await ctx.ask_all({"copies": Elicit("How many?", Copies), "left": LEFT})
        return f"{answers['copies'].copies} {answers['left']}"

    trace = Steps()
    made = await User(
        shop(body, trace=trace), {"copies": [{"copies": 10}, {"copies": 9}], "left": {"value": 7}}, era=era
    ).call("order")
    assert made.text == "9 7"
    assert [message.splitlines()[0] for message in made.asked] == [
        "How many?",
        "Left?",
        "How many?",
    ]
    assert "The last answer was not valid: copies" in made.asked[2]
    assert trace.asked == [{"copies": "new", "left": "new"}, {"copies": "invalid"}]


async def test_too_many_invalid_answers_end_the_call_naming_the_question() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("copies", "How many?", Copies, attempts=2)
        return "never"

    result = await User(shop(body), {"copies": [{"copies": 10}, {"copies": 0}]}, era=Era.RETRY).call("order")
    assert result.text.startswith("Error executing tool order: question 'copies' was answered invalidly 2 times")


@pytest.mark.parametrize(("action", "era"), [("decline", Era.RETRY), ("cancel", Era.LIVE)])
async def test_declined_question_ends_the_asking_call(era: Era, action: str) -> None:
    trace = Steps()
    cleaned: list[str] = []

    async def body(ctx: Context[Any, Any]) -> str:
        try:
            copies = await ctx.ask("copies", "How many?", Copies)
        finally:
            cleaned.append("up")
        return f"{copies.copies}"

    result = await User(shop(body, trace=trace), {"copies": UserAction(action)}, era=era).call("order")
    assert result.is_error
    assert (
        result.text
        == f"Error executing tool order: The user {action}{'d' if action == 'decline' else 'led'} the question 'copies'"
    )
    assert trace.states[-2:] == [State.EXECUTING, State.DECLINED]
    assert trace.events[-1] is Event.DECLINE
    assert cleaned


async def test_body_can_catch_that_its_question_was_declined() -> None:
    trace = Steps()

    async def body(ctx: Context[Any, Any]) -> str:
        try:
            await ctx.ask("left", LEFT)
        except RoundtripError as error:
            return f"no: {error}"
        return "yes"

    result = await User(shop(body, trace=trace), {"left": DECLINE}, era=Era.RETRY).call("order")
    assert result.text == "no: The user declined the question 'left'"
    assert trace.states[-1] is State.COMPLETED


async def test_outcome_of_a_question_can_be_asked_for(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        answer = await ctx.ask_outcome("copies", "How many?", Copies)
        return f"{answer.action} {answer.data.copies if answer.action == 'accept' else 0}"

    assert (await User(shop(body), {"copies": {"copies": 2}}, era=era).call("order")).text == "accept 2"
    assert (await User(shop(body), {"copies": DECLINE}, era=era).call("order")).text == "decline 0"
    assert (await User(shop(body), {"copies": CANCEL}, era=era).call("order")).text == "cancel 0"


async def test_outcomes_of_a_round_can_be_asked_for(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        got = await ctx.ask_all_outcomes({"left": LEFT, "right": RIGHT, "roots": ListRoots()})
        return f"{got['left'].data} {got['right'].action} {len(got['roots'].roots)}"

    answers: Answers = {"left": {"value": 1}, "right": DECLINE}
    assert (await User(shop(body), answers, era=era, roots=[]).call("order")).text == "1 decline 0"


async def test_answers_come_in_the_order_of_their_questions() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        got = await ctx.ask_all({"adults": Elicit("Adults?", Copies), "children": Elicit("Children?", Copies)})
        adults, children = got.values()
        return f"{list(got)} {adults.copies} adults, {children.copies} children"

    answers: Answers = {"adults": [{"copies": 0}, {"copies": 2}], "children": {"copies": 5}}
    call = await User(shop(body), answers, era=Era.RETRY).call("order")
    assert call.text == "['adults', 'children'] 2 adults, 5 children"
