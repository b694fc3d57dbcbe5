"""Chains of `once` questions: a leg restores only the values that it still needs, without any other difference."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, field_validator

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import LegByLeg
from tests.kit.players import text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


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
    """Three `once` questions in a chain, and one without `once`."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def server(self, *, build: str = "1", needs_first: bool = False) -> Server[Any]:
        server = Server[Any]("chain", keys=[KEY], build=build)
        ran = self.ran

        async def first() -> Elicit[Word]:
            return Elicit("First?", Word)

        async def second(before: Annotated[Word, Resolve(first, once=True)]) -> Elicit[Word]:
            ran.append(f"second after {before.text}")
            return Elicit("Second?", Word)

        async def third(before: Annotated[Word, Resolve(second, once=True)]) -> Elicit[Word]:
            ran.append(f"third after {before.text}")
            return Elicit("Third?", Word)

        async def last(
            before: Annotated[Word, Resolve(third, once=True)],
            early: Annotated[Word, Resolve(first if needs_first else third, once=True)],
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
