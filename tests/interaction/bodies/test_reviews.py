"""`ctx.review`: earlier answers in one form; only questions that depend on a changed one are asked again."""

import re
from collections import Counter
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, ElicitUrl, Event, Resolve, State
from roundtrip.client.legs import ERAS
from roundtrip.testing import ACCEPT, DECLINE, Answers, AskedQuestion, Era, Restart, Steps, User
from roundtrip.testing.scripts import UserAction
from tests.interaction.bodies.shops import shop

pytestmark = pytest.mark.anyio


class City(BaseModel):
    city: str


class Hotel(BaseModel):
    hotel: str


class Seat(BaseModel):
    seat: int = Field(ge=1, le=9)


RAN: Counter[str] = Counter()


async def where() -> Elicit[City]:
    return Elicit("Where to?", City)


async def which_hotel(city: Annotated[City, Resolve(where, name="city")]) -> Elicit[Hotel]:
    return Elicit(f"Which hotel in {city.city}?", Hotel)


async def which_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


async def by_resolvers(
    ctx: Context[Any, Any],
    city: Annotated[City, Resolve(where, name="city")],
    hotel: Annotated[Hotel, Resolve(which_hotel, name="hotel")],
    seat: Annotated[Seat, Resolve(which_seat, name="seat")],
) -> str:
    reviewed = await ctx.review_outcome("review", "All right?", ["city", "hotel", "seat"])
    return f"{reviewed.action}: {city.city}, {hotel.hotel}, {seat.seat}"


async def by_body(ctx: Context[Any, Any]) -> str:
    seat = await ctx.ask("seat", "Which seat?", Seat)
    city = await ctx.ask("city", "Where to?", City)
    fare = await ctx.step("fare", fare_to, city.city)
    hotel = await ctx.ask("hotel", f"Which hotel in {city.city}?", Hotel)
    reviewed = await ctx.review_outcome("review", "All right?", ["city", "hotel", "seat"])
    return f"{reviewed.action}: {city.city}, {hotel.hotel}, {seat.seat}, {fare}"


def fare_to(city: str) -> int:
    RAN[city] += 1
    return len(city) * 100


async def test_declined_review_ends_its_call() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("city", "Where to?", City)
        return f"{await ctx.review('review', 'All right?', ['city'])}"

    trace = Steps()
    user = User(shop(body, trace=trace), {"city": {"city": "Rome"}, "review": DECLINE}, era=Era.RETRY)
    result = await user.call("order")
    assert result.text == "Error executing tool order: The user declined the question 'review'"
    assert trace.events[-1] is Event.DECLINE


BODIES = [by_resolvers, by_body]
FIRST: dict[str, list[Any]] = {
    "Where to?": [{"city": "Rome"}],
    "Which hotel in Rome?": [{"hotel": "Forum"}],
    "Which seat?": [{"seat": 3}],
}


class Talk:
    """User who answers each question by its text, in turn."""

    def __init__(self, replies: dict[str, list[Any]]) -> None:
        self._answers: Answers = {re.compile(re.escape(message)): given for message, given in (FIRST | replies).items()}
        self.questions: list[AskedQuestion] = []

    async def order(self, body: Any, era: Era, trace: Steps | None = None) -> str:
        call = await User(shop(body, trace=trace), self._answers, era=era).call("order")
        self.questions = call.questions
        return call.text

    @property
    def asked(self) -> list[str]:
        return sorted(question.message.split("\n")[0] for question in self.questions)


@pytest.mark.parametrize("body", BODIES)
async def test_changed_review_answer_repeats_only_dependent_questions(body: Any) -> None:
    changed: dict[str, Any] = {"city.city": "Oslo", "hotel.hotel": "Forum", "seat.seat": 3}
    talk = Talk({"All right?": [changed], "Which hotel in Oslo?": [{"hotel": "Fjord"}]})
    RAN.clear()
    result = await talk.order(body, Era.RETRY)
    assert result.startswith("accept: Oslo, Fjord, 3")
    assert talk.asked == sorted(
        ["Where to?", "Which hotel in Rome?", "Which seat?", "All right?", "Which hotel in Oslo?"]
    )
    expected = {} if body is by_resolvers else {"Rome": 1, "Oslo": 1}
    assert expected == RAN


@pytest.mark.parametrize("body", BODIES)
async def test_a_review_walks_the_same_path_on_both_eras(body: Any) -> None:
    paths: list[tuple[list[State], list[dict[str, str]]]] = []
    for era in ERAS:
        trace = Steps()
        talk = Talk({"All right?": [{"city.city": "Oslo"}], "Which hotel in Oslo?": [{"hotel": "Fjord"}]})
        await talk.order(body, era, trace)
        paths.append((trace.states, trace.asked))
    assert paths[0] == paths[1]


async def test_two_fields_of_a_review_cannot_have_one_name() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("ship", "Which ship?", Seat)
        await ctx.ask("ship.seat", "Which seat on it?", int)
        await ctx.review("all", "Right?", of=["ship", "ship.seat"])
        return "never"

    answers: Any = {"ship": {"seat": 1}, "ship.seat": {"value": 2}}
    result = await User(shop(body), answers, era=Era.RETRY, allow_error=True).call("order")
    assert "a review cannot show two fields named 'ship.seat'; rename one of the questions" in result.text


@pytest.mark.parametrize(
    ("body", "content"),
    [(by_resolvers, {}), (by_body, {"city.city": "Rome", "hotel.hotel": "Forum", "seat.seat": 3})],
)
async def test_a_review_shows_the_earlier_answers_filled_in(body: Any, content: Any) -> None:
    """Shows F3."""
    talk = Talk({"All right?": [content]})
    assert (await talk.order(body, Era.RETRY)).startswith("accept: Rome, Forum, 3")
    # What changes nothing asks nothing again.
    assert len(talk.asked) == 4
    schema = talk.questions[-1].schema
    assert schema is not None
    assert {name: shape["default"] for name, shape in schema["properties"].items()} == {
        "city.city": "Rome",
        "hotel.hotel": "Forum",
        "seat.seat": 3,
    }
    assert not schema.get("required")


@pytest.mark.parametrize(("body", "action"), [(by_resolvers, "decline"), (by_body, "cancel")])
async def test_unanswered_review_changes_nothing_and_reports_it(era: Era, body: Any, action: str) -> None:
    talk = Talk({"All right?": [UserAction(action)]})
    assert (await talk.order(body, era)).startswith(f"{action}: Rome, Forum, 3")
    assert len(talk.asked) == 4


@pytest.mark.parametrize("body", BODIES)
async def test_invalid_review_change_names_the_question_and_asks_again(body: Any) -> None:
    talk = Talk({"All right?": [{"seat.seat": 10}, {"seat.seat": 9}]})
    if body is by_body:
        # All that comes after the seat in the body may depend on it.
        talk = Talk(
            {
                "All right?": [{"seat.seat": 10}, {"seat.seat": 9}],
                "Where to?": [{"city": "Rome"}] * 2,
                "Which hotel in Rome?": [{"hotel": "Forum"}] * 2,
            }
        )
    assert (await talk.order(body, Era.RETRY)).startswith("accept: Rome, Forum, 9")
    complaint = next(question.message for question in talk.questions if "not valid" in question.message)
    assert complaint.startswith("All right?")
    assert "seat: seat" in complaint


async def test_a_change_of_the_last_answer_asks_nothing_again() -> None:
    talk = Talk({"All right?": [{"hotel.hotel": "Forum II"}]})
    assert await talk.order(by_body, Era.RETRY) == "accept: Rome, Forum II, 3, 400"
    assert talk.asked == sorted([*FIRST, "All right?"])


async def test_a_review_is_resumed_on_other_servers() -> None:
    answers: Answers = {
        "seat": {"seat": 3},
        "city": {"city": "Rome"},
        "hotel": [{"hotel": "Forum"}, {"hotel": "Fjord"}],
        "review": {"city.city": "Oslo"},
    }
    call = await User(lambda: shop(by_body), answers, network=Restart()).call("order")
    assert call.text == "accept: Oslo, Fjord, 3, 400"
    assert call.names == ["seat", "city", "hotel", "review", "hotel"]


async def test_the_outcome_holds_the_answers_by_their_names() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("copies", "How many?", int)
        await ctx.ask("city", "Where to?", City)
        reviewed = await ctx.review_outcome("review", "All right?", ["copies", "city"])
        if reviewed.action != "accept":
            return reviewed.action
        return f"{reviewed.data['copies']} {reviewed.data['city'].city}"

    answers: Answers = {"copies": 1, "city": {"city": "Rome"}, "review": {"copies": 1}}
    call = await User(shop(body), answers, era=Era.RETRY).call("order")
    assert call.text == "1 Rome"
    assert set((call.questions[-1].schema or {})["properties"]) == {"copies", "city.city"}


@pytest.mark.parametrize("name", ["unknown", "declined", "later"])
async def test_reviewing_an_unanswered_question_names_it_in_the_error(name: str) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask_outcome("declined", "Where to?", City)
        await ctx.review("review", "All right?", [name])
        return "never"

    result = await User(shop(body), {"declined": DECLINE}, era=Era.RETRY).call("order")
    assert f"ctx.review('review') cannot show '{name}'" in result.text


async def test_answer_of_the_same_round_is_not_asked_again() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        both = await ctx.ask_all({"city": Elicit("Where to?", City), "seat": Elicit("Which seat?", Seat)})
        fare = await ctx.ask("fare", "Which fare?", int)
        await ctx.review("review", "All right?", ["city", "seat"])
        return f"{both}, {fare}"

    answers = {
        **{"city": {"city": "Rome"}, "seat": {"seat": 3}, "fare": [1, 2]},
        "review": {"city.city": "Paris", "seat.seat": 3},
    }
    call = await User(shop(body), answers, era=Era.RETRY).call("order")
    assert [question.name for question in call.questions] == ["city", "seat", "fare", "review", "fare"]
    assert "Paris" in call.text
    assert call.text.endswith(", 2")


async def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


async def test_once_answer_can_be_reviewed(era: Era) -> None:
    """The resolver's function does not run again."""

    async def body(copies: Annotated[int, Resolve(how_many, remember=True)], ctx: Context[Any, Any]) -> str:
        kept = await ctx.ask("wrap", f"Wrap {copies}?", bool)
        await ctx.review("check", "Is this right?", of=["how_many"])
        return f"{copies}, {'wrapped' if kept else 'bare'}"

    answers: Answers = {"how_many": 2, "wrap": [True, False], "check": {"how_many": 3}}
    call = await User(shop(body), answers, era=era).call("order")
    assert call.text == "3, bare"
    assert call.asked == ["How many?", "Wrap 2?", "Is this right?", "Wrap 3?"]


async def paid_on_a_page() -> ElicitUrl[str]:
    return ElicitUrl("Pay", "https://pay.example/", done=lambda: "receipt 7")


async def test_page_cannot_be_reviewed(era: Era) -> None:
    async def body(paid: Annotated[str, Resolve(paid_on_a_page, remember=True)], ctx: Context[Any, Any]) -> str:
        await ctx.review("check", "Is this right?", of=["paid_on_a_page"])
        return "never"

    call = await User(shop(body), {"paid_on_a_page": ACCEPT}, era=era).call("order")
    assert "ctx.review('check') cannot show 'paid_on_a_page'" in call.text


async def test_review_reopens_a_resolver_beside_another_question() -> None:
    async def body(
        ctx: Context[Any, Any],
        city: Annotated[City, Resolve(where, name="city")],
        hotel: Annotated[Hotel, Resolve(which_hotel, name="hotel")],
    ) -> str:
        async def ask_more() -> None:
            await ctx.ask("extra", "Anything else?", str)

        async with anyio.create_task_group() as tasks:
            if ctx.call.leg < 4:
                await ctx.review("check", "Is this right?", of=["city"])
            tasks.start_soon(ask_more)
            await ctx.review("check", "Is this right?", of=["city"])
        return f"{city.city}, {hotel.hotel}"

    answers: Answers = {
        **{"city": {"city": "Rome"}, "hotel": {"hotel": "Roma"}, "extra": "no"},
        "check": {"city.city": "Paris"},
    }
    call = await User(shop(body), answers, era=Era.RETRY).call("order")
    assert call.text == "Paris, Roma"
