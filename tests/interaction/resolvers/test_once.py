"""`remember=True`: fixed for the call, not run again, read only where needed, and unreadable to the client."""

import itertools
import re
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, field_validator

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Era, LegByLeg, Restart, User
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, sure
from tests.kit.token_readings import readings

pytestmark = pytest.mark.anyio


class Quote(BaseModel):
    price: int
    note: str = ""


class Runs:
    """Shop whose prices rise with every look, and the number of looks."""

    def __init__(self, note: str = "") -> None:
        self.quoted = 0
        self.asked = 0
        self.note = note

    def shop(self) -> Server[Any]:
        server = Server[Any]("shop", keys=[KEY])

        async def quote() -> Quote:
            self.quoted += 1
            return Quote(price=100 + self.quoted, note=self.note)

        async def confirm(quote: Annotated[Quote, Resolve(quote, remember=True)]) -> Elicit[Choice]:
            self.asked += 1
            return Elicit(f"Pay {quote.price}?", Choice)

        async def wrap(choice: Annotated[Choice, Resolve(confirm)]) -> Elicit[Choice]:
            return Elicit(f"Wrap it ({choice.ok})?", Choice)

        @server.tool()
        async def order(
            quote: Annotated[Quote, Resolve(quote, remember=True)],
            choice: Annotated[Choice, Resolve(confirm)],
            wrapped: Annotated[Choice, Resolve(wrap)],
        ) -> str:
            return f"{quote.price} {choice.ok} {wrapped.ok}"

        return server


ROUNDS = [{"confirm": {"ok": True}}, {"wrap": {"ok": False}}]


async def test_once_value_is_computed_once_across_instances() -> None:
    runs = Runs()
    call = await User(runs.shop, ROUNDS, network=Restart()).call("order")
    assert call.text == "101 True False"
    assert runs.quoted == 1
    assert runs.asked == 3


async def test_next_call_computes_the_value_again() -> None:
    runs = Runs()
    user = User(runs.shop(), {"confirm": {"ok": True}, "wrap": {"ok": True}}, era=Era.RETRY)
    assert (await user.call("order")).text == "101 True True"
    assert (await user.call("order")).text == "102 True True"
    assert runs.quoted == 2


async def test_computed_value_is_unreadable_in_the_token() -> None:
    hopper = LegByLeg(Runs("MARGIN-IS-42-PERCENT").shop)
    await hopper.leg("order")
    await hopper.leg("order", answers=ROUNDS[0], state=hopper.token)
    for text in readings(hopper.token):
        assert b"MARGIN" not in text
        assert b"percent" not in text.lower()
        assert b"101" not in re.sub(rb"\d{5,}", b"", text)


async def test_answers_of_the_client_itself_can_be_read_by_it() -> None:
    hopper = LegByLeg(Runs().shop)
    await hopper.leg("order")
    await hopper.leg("order", answers=ROUNDS[0], state=hopper.token)
    assert any(b'{"ok":true}' in text for text in readings(hopper.token))


async def test_value_of_a_function_without_annotation_is_computed_once() -> None:
    numbers = itertools.count(1)
    server = Server[Any]("shop", keys=[KEY])
    stamp = Resolve(lambda: {"number": next(numbers)}, name="stamp", remember=True)

    @server.tool()
    async def order(stamp: Annotated[dict[str, int], stamp], ok: Annotated[Choice, Resolve(sure)]) -> str:
        return f"{stamp} {ok.ok}"

    del order
    user = User(server, {"sure": {"ok": True}}, era=Era.RETRY)
    assert (await user.call("order")).text == "{'number': 1} True"
    assert next(numbers) == 2


READ: list[str] = []
"""The answers that were read, in a form's validator."""


class Word(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def note(cls, text: str) -> str:
        READ.append(text)
        return text


class Chain:
    """Three remembered questions in a chain, and one that is asked anew."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def server(self, *, build: str = "1", needs_first: bool = False) -> Server[Any]:
        server = Server[Any]("chain", keys=[KEY], build=build)
        ran = self.ran

        async def first() -> Elicit[Word]:
            return Elicit("First?", Word)

        async def second(before: Annotated[Word, Resolve(first, remember=True)]) -> Elicit[Word]:
            ran.append(f"second after {before.text}")
            return Elicit("Second?", Word)

        async def third(before: Annotated[Word, Resolve(second, remember=True)]) -> Elicit[Word]:
            ran.append(f"third after {before.text}")
            return Elicit("Third?", Word)

        async def last(
            before: Annotated[Word, Resolve(third, remember=True)],
            early: Annotated[Word, Resolve(first if needs_first else third, remember=True)],
        ) -> Elicit[Word]:
            ran.append(f"last after {before.text} and {early.text}")
            return Elicit("Last?", Word)

        @server.tool()
        async def order(end: Annotated[Word, Resolve(last)]) -> str:
            return end.text

        return server


async def _through(legs: LegByLeg, *keys: str) -> None:
    await legs.leg("order")
    for key in keys:
        await legs.leg("order", answers={key: {"text": key}}, state=legs.token)


async def test_answer_behind_final_answers_is_not_read_again() -> None:
    chain = Chain()
    legs = LegByLeg([chain.server()])
    await _through(legs, "first", "second", "third")
    READ.clear()
    chain.ran.clear()
    result = await legs.leg("order", answers={"last": {"text": "end"}}, state=legs.token)
    assert text_of(result) == "end"
    assert set(READ) == {"third", "end"}
    assert chain.ran == ["last after third and third"]


async def test_value_needed_by_a_rerun_is_read_again() -> None:
    chain = Chain()
    legs = LegByLeg([chain.server(needs_first=True)])
    await _through(legs, "first", "second", "third")
    READ.clear()
    await legs.leg("order", answers={"last": {"text": "end"}}, state=legs.token)
    assert set(READ) == {"first", "third", "end"}
    assert chain.ran[-1] == "last after third and first"


async def test_another_build_reads_all_earlier_answers() -> None:
    chain = Chain()
    legs = LegByLeg([chain.server()])
    await _through(legs, "first", "second", "third")
    READ.clear()
    newer = LegByLeg([chain.server(build="2")])
    result = await newer.leg("order", answers={"last": {"text": "end"}}, state=legs.token)
    assert text_of(result) == "end"
    assert set(READ) == {"first", "second", "third", "end"}
