"""`ctx.step`: a value computed once per call, typed by the function's return annotation."""

from collections import Counter
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from roundtrip import Context, ToolError
from roundtrip.testing import Era, Hop, LegByLeg, User
from tests.interaction.bodies.shops import LEFT, shop
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio


class Quote(BaseModel):
    price: int
    until: date


@dataclass(frozen=True)
class Slot:
    day: date
    hours: tuple[int, ...]


def quote(price: int, *, day: int) -> Quote:
    return Quote(price=price, until=date(2026, 12, day))


async def slot() -> Slot:
    return Slot(date(2026, 12, 24), (9, 17))


async def named(*, key: str, fn: str) -> str:
    return f"{key} {fn}"


def pair() -> tuple[date, float]:
    return date(2026, 1, 1), 0.5


async def test_step_result_keeps_its_annotated_type_on_every_leg(era: Era) -> None:
    seen: list[tuple[Any, ...]] = []

    async def body(ctx: Context[Any, Any]) -> str:
        values = (
            await ctx.step("quote", quote, 7, day=24),
            await ctx.step("slot", slot),
            await ctx.step("pair", pair),
            # Without an annotation a tuple is JSON, and JSON has lists only.
            await ctx.step("lambda", lambda: (1, "two")),
            await ctx.step("named", named, key="dune", fn="title"),
            await ctx.step("nothing", print, end=""),
        )
        seen.append(values)
        await ctx.ask("left", LEFT)
        return values[0].until.isoformat()

    assert (await User(shop(body), {"left": {"value": 1}}, era=era).call("order")).text == "2026-12-24"
    expected = (
        Quote(price=7, until=date(2026, 12, 24)),
        Slot(date(2026, 12, 24), (9, 17)),
        (date(2026, 1, 1), 0.5),
        [1, "two"],
        "dune title",
        None,
    )
    assert seen == [expected] * (2 if era is Era.RETRY else 1)


async def test_failed_step_fails_the_call_and_reruns_if_caught(era: Era) -> None:
    runs: Counter[str] = Counter()

    def shaky() -> int:
        runs["shaky"] += 1
        raise ToolError("the supplier is away")

    async def fails(ctx: Context[Any, Any]) -> int:
        return await ctx.step("shaky", shaky)

    async def goes_on(ctx: Context[Any, Any]) -> int:
        try:
            price = await ctx.step("shaky", shaky)
        except ToolError:
            price = 5
        return price + await ctx.ask("left", LEFT)

    assert (await User(shop(fails), era=era).call("order")).text == "Error executing tool order: the supplier is away"
    runs.clear()
    assert (await User(shop(goes_on), {"left": {"value": 1}}, era=era).call("order")).text == "6"
    assert runs["shaky"] == (2 if era is Era.RETRY else 1)


async def test_step_result_without_json_form_fails_naming_the_step() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.step("connection", object)
        return "never"

    result = await User(shop(body), era=Era.RETRY).call("order")
    assert result.text.startswith("Error executing tool order: the value of 'connection' cannot be remembered")


async def test_step_result_that_cannot_be_read_back_fails_with_the_place_and_without_the_value() -> None:
    class Card(BaseModel):
        number: str

        @field_validator("number")
        @classmethod
        def digits(cls, number: str) -> str:
            if not number.isdigit():
                raise ValueError("only digits")
            return number

    def card() -> Card:
        return Card.model_construct(number="tangerine")

    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.step("card", card)
        return "never"

    result = await User(shop(body), era=Era.RETRY).call("order")
    assert "the value of 'card' cannot be remembered" in result.text
    assert "number: Value error, only digits" in result.text
    assert "tangerine" not in result.text


async def test_unreadable_step_result_of_another_build_is_computed_again() -> None:
    def number() -> int:
        return 7

    async def before(ctx: Context[Any, Any]) -> str:
        await ctx.step("value", number)
        await ctx.ask("left", LEFT)
        return "done"

    async def after(ctx: Context[Any, Any]) -> int:
        value = await ctx.step("value", quote, 8, day=1)
        await ctx.ask("left", LEFT)
        return value.price

    call = await User([shop(before), shop(after)], {"left": 1}, network=Hop()).call("order")
    assert call.text == "8"


async def test_replayed_leg_reruns_only_its_own_steps() -> None:
    """Shows S5."""
    runs: Counter[str] = Counter()

    def count(key: str) -> int:
        runs[key] += 1
        return runs[key]

    async def body(ctx: Context[Any, Any]) -> str:
        early = await ctx.step("early", count, "early")
        await ctx.ask("left", LEFT)
        late = await ctx.step("late", count, "late")
        return f"{early} {late}"

    hopper = LegByLeg(lambda: shop(body))
    await hopper.leg("order")
    answers: dict[str, Any] = {"left": {"value": 1}}
    assert text_of(await hopper.leg("order", answers=answers, state=hopper.token)) == "1 1"
    assert text_of(await hopper.leg("order", answers=answers, state=hopper.token)) == "1 2"
    assert runs == {"early": 1, "late": 2}
