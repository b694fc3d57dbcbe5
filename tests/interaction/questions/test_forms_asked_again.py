"""Forms as clients get them; one that is asked again shows the valid parts of the answer, which answer nothing."""

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import AfterValidator, BaseModel, Field, model_validator

from roundtrip import Context, Elicit, InvalidSignature, Resolve, Server
from roundtrip.client.legs import LegRequest
from roundtrip.testing import Era, LegByLeg, User
from tests.kit.players import Person, Reply, connect, text_of
from tests.kit.secrets import NEW

pytestmark = pytest.mark.anyio


class Extra(Enum):
    BREAKFAST = "breakfast"
    PARKING = "parking"


def of_a_known_guest(name: str) -> str:
    if name == "eve":
        raise ValueError("is not a guest")
    return name


class Stay(BaseModel):
    arrival: date
    guest: Annotated[str, AfterValidator(of_a_known_guest)]
    nights: int = Field(ge=1, le=14)
    price: float = Field(default=10.0, gt=0)
    view: Literal["sea", "garden"] = "garden"
    extras: list[Extra] = []
    late: bool = False


VALID: dict[str, Any] = {
    "arrival": "2026-12-24",
    "guest": "ada",
    "nights": 3,
    "price": 12.5,
    "view": "sea",
    "extras": ["parking"],
    "late": True,
}


async def stay() -> Elicit[Stay]:
    return Elicit("Your stay?", Stay)


def hotel(place: str) -> Server[Any]:
    server = Server[Any]("hotel", keys=[NEW])

    async def by_resolver(stay: Annotated[Stay, Resolve(stay)]) -> str:
        return f"{stay.guest}, {stay.nights} nights"

    async def by_body(ctx: Context) -> str:
        answer = await ctx.ask("stay", await stay())
        return f"{answer.guest}, {answer.nights} nights"

    server.add_tool(by_resolver if place == "resolver" else by_body, name="book")
    return server


def defaults(asked: ElicitRequestFormParams) -> dict[str, Any]:
    shapes = asked.requested_schema["properties"]
    return {name: shape["default"] for name, shape in shapes.items() if "default" in shape}


async def answered(server: Server[Any], era: Era, *replies: Reply) -> tuple[Person, str]:
    person = Person(*replies)
    async with connect(server, era, person) as client:
        return person, text_of(await client.call_tool("book"))


AUTHORS: dict[str, Any] = {"price": 10.0, "view": "garden", "extras": [], "late": False}


WRONG: dict[str, Any] = {
    "arrival": "tomorrow",
    "guest": "eve",
    "nights": 99,
    "price": -1.0,
    "view": "street",
    "extras": ["parking", "pool"],
    "late": "sometimes",
}


@pytest.mark.parametrize("place", ["resolver", "body"])
async def test_valid_fields_come_back_as_defaults(era: Era, place: str) -> None:
    server = hotel(place)
    again: dict[str, Any] = {}
    for field, value in WRONG.items():
        person, text = await answered(server, era, {**VALID, field: value}, VALID)
        assert text == "ada, 3 nights"
        assert defaults(person.asked[0]) == AUTHORS
        again[field] = defaults(person.asked[1])
    assert again == {
        field: {**AUTHORS, **{name: one for name, one in VALID.items() if name != field}} for field in WRONG
    }


async def test_defaults_answer_nothing(era: Era) -> None:
    person, text = await answered(hotel("resolver"), era, {**VALID, "nights": 99}, {"nights": 3}, VALID)
    assert text == "ada, 3 nights"
    # Only the last answer counts for what is shown next.
    assert defaults(person.asked[2]) == {**AUTHORS, "nights": 3}


class Period(BaseModel):
    first: int
    last: int
    note: str = ""

    @model_validator(mode="after")
    def in_order(self) -> "Period":
        if self.last < self.first:
            raise ValueError("ends before it begins")
        return self


async def test_rule_of_the_whole_form_shows_fields_that_fit() -> None:
    server = Server[Any]("hotel", keys=[NEW])

    @server.tool()
    async def book(ctx: Context) -> str:
        await ctx.ask("asked", "?", Period)
        return "done"

    wrong = {"first": 5, "last": 2, "note": "x"}
    person, text = await answered(server, Era.RETRY, wrong, {"first": 2, "last": 5})
    assert text == "done"
    assert defaults(person.asked[1]) == wrong


async def test_answer_of_another_kind_fills_nothing_in() -> None:
    legs = LegByLeg(hotel("resolver"))
    await legs.leg("book")
    await legs.send(LegRequest("book", {}, {"stay": ElicitResult(action="accept")}, legs.token))
    asked = legs.questions["stay"].params
    assert isinstance(asked, ElicitRequestFormParams)
    assert defaults(asked) == AUTHORS


# A form that is asked once.


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Defaults(BaseModel):
    name: str = "Ada"
    count: int = 2
    share: float = 0.5
    sure: bool = False
    size: Size = Size.SMALL
    tags: list[Literal["x", "y"]] = ["x"]
    day: date = date(2026, 7, 28)
    larger: Size | None = Size.LARGE
    note: str | None = None


async def test_every_primitive_may_have_a_default(era: Era) -> None:
    """Shows F3 and F4."""
    server, got = Server[Any]("hotel", keys=[NEW]), list[Defaults]()

    @server.tool()
    async def book(ctx: Context) -> str:
        got.append(await ctx.ask("asked", "?", Defaults))
        return "done"

    person, text = await answered(server, era, {})
    assert (text, got) == ("done", [Defaults()])
    (form,) = person.asked
    assert defaults(form) == {
        "name": "Ada",
        "count": 2,
        "share": 0.5,
        "sure": False,
        "size": "s",
        "tags": ["x"],
        "day": "2026-07-28",
        "larger": "l",
    }
    assert form.requested_schema["properties"]["note"] == {"type": "string", "title": "Note"}
    assert "required" not in form.requested_schema


class Inner(BaseModel):
    x: int


class Nested(BaseModel):
    inner: Inner


def test_unrenderable_form_is_rejected_at_registration_by_field() -> None:
    """Shows F4."""

    async def question() -> Elicit[Nested]:
        return Elicit("?", Nested)

    async def order(answer: Annotated[Any, Resolve(question)]) -> str:
        return "never"

    with pytest.raises(InvalidSignature, match="'inner'"):
        Server("shop").add_tool(order)


async def test_late_unrenderable_form_is_rejected_before_sending(era: Era) -> None:
    """Shows F4."""
    server = Server("shop")

    async def question() -> Any:
        return Elicit("?", Nested)

    @server.tool()
    async def order(answer: Annotated[Any, Resolve(question)]) -> str:
        return "never"

    call = await User(server, era=era).call("order")
    assert call.is_error
    assert call.questions == []
