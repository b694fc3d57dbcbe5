"""Calls in flight over a deploy: each answer stays with its question, whatever moved, changed or was renamed."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from mcp_types import InputRequiredResult
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import LegByLeg, Steps
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, sure

pytestmark = pytest.mark.anyio


class Name(BaseModel):
    name: str


class FullName(BaseModel):
    name: str
    surname: str = ""


Asker = Callable[[], Awaitable[Elicit[Any]]]


def asker(message: str, schema: type[BaseModel] = Name) -> Asker:
    async def ask() -> Elicit[Any]:
        return Elicit(message, schema)

    return ask


def deploy(tool: Callable[..., Any], build: str, trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], build=build, trace=trace)
    server.add_tool(tool, name="order")
    return server


async def test_reordered_closures_with_one_wording_keep_their_answers() -> None:
    def tool(*, reordered: bool) -> Callable[..., Any]:
        first, second = Resolve(asker("Name?")), Resolve(asker("Name?"))

        async def forwards(a: Annotated[Name, first], b: Annotated[Name, second]) -> str:
            return f"a={a.name} b={b.name}"

        async def backwards(b: Annotated[Name, second], a: Annotated[Name, first]) -> str:
            return f"a={a.name} b={b.name}"

        return backwards if reordered else forwards

    hopper = LegByLeg([deploy(tool(reordered=False), "1"), deploy(tool(reordered=True), "2")])
    await hopper.leg("order")
    # One is answered on the first build, the other on the second.
    await hopper.leg("order", answers={"ask@a": {"name": "Ada"}}, state=hopper.token)
    assert list(hopper.questions) == ["ask@b"]
    result = await hopper.leg("order", answers={"ask@b": {"name": "Bob"}}, state=hopper.token)
    assert text_of(result) == "a=Ada b=Bob"


def two_questions(first: str, schema: type[BaseModel] = Name, *, extra: bool = False) -> Callable[..., Any]:
    async def name() -> Elicit[Any]:
        return Elicit(first, schema)

    async def gift() -> bool:
        return True

    async def tip() -> Elicit[Choice]:
        return Elicit("A tip?", Choice)

    async def order(name: Annotated[Any, Resolve(name)], sure: Annotated[Choice, Resolve(sure)]) -> str:
        return f"{name.name} {sure.ok}"

    async def order_with_more(
        gift: Annotated[bool, Resolve(gift)],
        name: Annotated[Any, Resolve(name)],
        tip: Annotated[Choice, Resolve(tip)],
        sure: Annotated[Choice, Resolve(sure)],
    ) -> str:
        return f"{name.name} {sure.ok} {tip.ok} {gift}"

    return order_with_more if extra else order


async def test_reworded_question_is_asked_again_with_the_reason() -> None:
    old, new = deploy(two_questions("Name?"), "1"), deploy(two_questions("Your name, please?"), "2")
    hopper = LegByLeg([old, old, new, new])
    await hopper.leg("order")
    await hopper.leg("order", answers={"name": {"name": "Ada"}}, state=hopper.token)
    assert list(hopper.questions) == ["sure"]
    await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)
    assert {key: question.message for key, question in hopper.questions.items()} == {"name": "Your name, please?"}
    result = await hopper.leg("order", answers={"name": {"name": "Bea"}}, state=hopper.token)
    assert text_of(result) == "Bea True"


async def test_question_reworded_while_pending_reports_the_change() -> None:
    for message, schema, reason in (
        ("Your name, please?", Name, "reworded"),
        ("Name?", FullName, "schema changed"),
        ("Both?", FullName, "schema changed"),
    ):
        trace = Steps()
        hopper = LegByLeg([deploy(two_questions("Name?"), "1"), deploy(two_questions(message, schema), "2", trace)])
        await hopper.leg("order")
        answers = {"name": {"name": "Ada"}, "sure": {"ok": True}}
        await hopper.leg("order", answers=answers, state=hopper.token)
        assert list(hopper.questions) == ["name"]
        assert trace.asked == [{"name": reason}]


async def test_an_old_build_carries_answers_it_does_not_know_unchanged() -> None:
    old, new = deploy(two_questions("Name?"), "1"), deploy(two_questions("Name?", extra=True), "2")
    hopper = LegByLeg([new, new, old, new])
    await hopper.leg("order")
    assert list(hopper.questions) == ["name", "tip", "sure"]
    await hopper.leg("order", answers={"tip": {"ok": False}}, state=hopper.token)
    # The old build does not know of tips; it asks what it lacks and keeps the answer for whoever does.
    await hopper.leg("order", answers={"name": {"name": "Ada"}}, state=hopper.token)
    assert list(hopper.questions) == ["sure"]
    result = await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)
    assert text_of(result) == "Ada True False True"


def renamed(key: str, former_names: tuple[str, ...] = ()) -> Callable[..., Any]:
    async def order(
        name: Annotated[Name, Resolve(asker("Name?"), name=key, former_names=former_names)],
        sure: Annotated[Choice, Resolve(asker("Sure?", Choice), name="sure")],
    ) -> str:
        return f"{name.name} {sure.ok}"

    return order


async def test_renamed_question_keeps_its_answer_through_its_former_name() -> None:
    hopper = LegByLeg([deploy(renamed("old"), "1")] * 2 + [deploy(renamed("new", former_names=("older", "old")), "2")])
    await hopper.leg("order")
    await hopper.leg("order", answers={"old": {"name": "Ada"}}, state=hopper.token)
    result = await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)
    assert text_of(result) == "Ada True"


async def test_a_question_renamed_without_a_word_is_asked_again() -> None:
    hopper = LegByLeg([deploy(renamed("old"), "1"), deploy(renamed("new"), "2")])
    await hopper.leg("order")
    result = await hopper.leg("order", answers={"old": {"name": "Ada"}, "sure": {"ok": True}}, state=hopper.token)
    assert isinstance(result, InputRequiredResult)
    assert list(hopper.questions) == ["new"]
