"""Answers that are wrong, missing, too many or not answers at all."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from roundtrip import Elicit, Event, Resolve, Server
from roundtrip.testing import ACCEPT, DECLINE, Answers, Era, LegByLeg, Steps, User, served
from tests.kit.players import text_of
from tests.kit.wire import accept, wire

pytestmark = pytest.mark.anyio
COMPLAINT = "\n\n(The last answer was not valid: copies: Input should be greater than or equal to 1)"


class Copies(BaseModel):
    copies: int = Field(ge=1)


class Name(BaseModel):
    name: str


async def how_many() -> Elicit[Copies]:
    return Elicit("How many?", Copies)


async def whose() -> Elicit[Name]:
    return Elicit("Whose?", Name)


def shop(trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[b"k" * 32], trace=trace)

    @server.tool()
    async def order(copies: Annotated[Copies, Resolve(how_many)], name: Annotated[Name, Resolve(whose)]) -> str:
        return f"{copies.copies} for {name.name}"

    async def once_only() -> Elicit[Copies]:
        return Elicit("One try?", Copies, attempts=1)

    @server.tool()
    async def strict(copies: Annotated[Copies, Resolve(once_only)]) -> int:
        return copies.copies

    return server


async def test_invalid_then_valid_answer_complete_within_one_client_call(era: Era) -> None:
    trace = Steps()
    answers: Answers = {"how_many": [{"copies": 0}, {"copies": 2}], "whose": [{"name": "Ada"}]}
    call = await User(shop(trace), answers, era=era).call("order")
    assert call.text == "2 for Ada"
    assert call.asked == ["How many?", "Whose?", "How many?" + COMPLAINT]
    assert trace.asked == [{"how_many": "new", "whose": "new"}, {"how_many": "invalid"}]


async def test_three_invalid_answers_end_the_call_naming_the_question(era: Era) -> None:
    trace = Steps()
    call = await User(shop(trace), {"how_many": {"copies": 0}, "whose": {"name": "Ada"}}, era=era).call("order")
    assert call.is_error
    assert call.text == (
        "Error executing tool order: question 'how_many' was answered invalidly 3 times; "
        "the last answer: copies: Input should be greater than or equal to 1"
    )
    assert call.names.count("how_many") == 3
    assert trace.events[-1] is Event.FAIL
    assert Event.EXECUTE not in trace.events


@pytest.mark.parametrize(
    ("answer", "told"),
    [({"copies": 0}, "question 'once_only' was answered invalidly 1 time"), (ACCEPT, "accepted with no content")],
    ids=["invalid", "without content"],
)
async def test_a_question_may_allow_a_single_attempt(era: Era, answer: Any, told: str) -> None:
    call = await User(shop(), {"once_only": answer}, era=era).call("strict")
    assert call.is_error
    assert told in call.text


async def test_missing_answers_are_asked_again_and_cost_no_attempt() -> None:
    """Shows S7."""
    trace = Steps()
    hopper = LegByLeg(lambda: shop(trace))
    await hopper.leg("order")
    for answers in (None, {}, {}, {}, {"whose": {"name": "Ada"}}):
        await hopper.leg("order", answers=answers, state=hopper.token)
    assert list(hopper.questions) == ["how_many"]
    assert trace.asked[-1] == {"how_many": "missing"}
    result = await hopper.leg("order", answers={"how_many": {"copies": 1}}, state=hopper.token)
    assert text_of(result) == "1 for Ada"


async def test_client_returning_without_its_state_starts_a_new_call() -> None:
    """Shows S10 and S7."""
    hopper = LegByLeg(shop)
    await hopper.leg("order")
    await hopper.leg("order", answers={"how_many": {"copies": 1}, "whose": {"name": "Ada"}}, state=None)
    assert list(hopper.questions) == ["how_many", "whose"]


async def test_unasked_answers_are_ignored() -> None:
    """Shows S8."""
    hopper = LegByLeg(shop)
    await hopper.leg("order", answers={"how_many": {"copies": 1}, "invented": {"x": 1}})
    assert list(hopper.questions) == ["how_many", "whose"]
    answers = {"how_many": {"copies": 2}, "invented": {"x": 1}, "order": DECLINE}
    await hopper.leg("order", answers=answers, state=hopper.token)
    assert list(hopper.questions) == ["whose"]
    # Neither does a second answer to a settled question replace the first.
    answers = {"whose": {"name": "Ada"}, "how_many": {"copies": 99}}
    result = await hopper.leg("order", answers=answers, state=hopper.token)
    assert text_of(result) == "2 for Ada"


MALFORMED: list[Any] = [
    7,
    "accept",
    ["how_many"],
    {"how_many": 7},
    {"how_many": None},
    {"how_many": {}},
    {"how_many": {"action": "maybe"}},
    {"how_many": {"action": "accept", "content": 7}},
    {"how_many": {"action": "accept", "content": {"copies": {"deep": 1}}}},
]


async def test_malformed_input_responses_are_a_protocol_error() -> None:
    """Shows S9."""
    trace = Steps()
    async with served(shop(trace), stateless_http=True) as url, wire(url) as post:
        state = (await post.result("order"))["requestState"]
        errors = [await post.error("order", requestState=state, inputResponses=wrong) for wrong in MALFORMED]
        answers = {"how_many": accept(copies=1), "whose": accept(name="Ada")}
        result = await post.result("order", requestState=state, inputResponses=answers)
    assert [error["code"] for error in errors] == [-32602] * len(MALFORMED)
    assert result["structuredContent"] == {"result": "1 for Ada"}
    assert trace.events.count(Event.FAIL) == 0
