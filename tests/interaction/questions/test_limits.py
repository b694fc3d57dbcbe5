"""Limits of a call's memory, and the errors beyond them."""

import random
import re
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from roundtrip import Elicit, Event, Resolve, Server
from roundtrip.testing import Answers, Era, LegByLeg, Steps, User
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice

pytestmark = pytest.mark.anyio


class Essay(BaseModel):
    text: str


def noise(length: int) -> str:
    """Return text that does not deflate."""
    return random.Random(length).randbytes(length).hex()[:length]


def shop(trace: Steps | None = None, **limits: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=trace, **limits)

    def asker(name: str) -> Any:
        async def ask() -> Elicit[Essay]:
            return Elicit(f"{name}?", Essay)

        return ask

    async def sure(
        a: Annotated[Essay, Resolve(asker("a"), key="a")],
        b: Annotated[Essay, Resolve(asker("b"), key="b")],
        c: Annotated[Essay, Resolve(asker("c"), key="c")],
        d: Annotated[Essay, Resolve(asker("d"), key="d")],
    ) -> Elicit[Choice]:
        return Elicit("Sure?", Choice)

    @server.tool()
    async def order(choice: Annotated[Choice, Resolve(sure)]) -> bool:
        return choice.ok

    return server


def essays(sizes: dict[str, int]) -> dict[str, Any]:
    return {key: {"text": noise(size)} for key, size in sizes.items()}


async def test_oversized_call_fails_and_lists_its_largest_entries() -> None:
    trace = Steps()
    hopper = LegByLeg([shop(trace)])
    await hopper.leg("order")
    answers = essays({"a": 30_000, "b": 40_000, "c": 50, "d": 20_000})
    result = text_of(await hopper.leg("order", answers=answers, state=hopper.token))
    assert re.search(r"of this call has \d+ bytes, over its limit of 65536\.", result)
    assert re.search(
        r"Largest entries: 'b' \(40\d\d\d bytes\), 'a' \(30\d\d\d bytes\), 'd' \(20\d\d\d bytes\)\.", result
    )
    assert "'c'" not in result
    assert trace.events[-1] is Event.FAIL


async def test_journal_limit_applies_before_the_token_limit() -> None:
    hopper = LegByLeg([shop(max_journal_bytes=2_000)])
    await hopper.leg("order")
    # It would deflate to almost nothing, but a journal is measured as what it inflates to.
    answers = {**essays({"b": 1, "c": 1, "d": 1}), "a": {"text": "a" * 5_000}}
    result = text_of(await hopper.leg("order", answers=answers, state=hopper.token))
    assert "over its limit of 2000" in result
    assert "'a' (50" in result


async def test_compressible_journal_fits() -> None:
    hopper = LegByLeg([shop()])
    await hopper.leg("order")
    answers = {key: {"text": f"{key} " * 10_000} for key in "abcd"}
    await hopper.leg("order", answers=answers, state=hopper.token)
    assert list(hopper.questions) == ["sure"]
    assert len(hopper.token) < 5_000
    assert text_of(await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)) == "true"


async def test_the_live_era_has_no_token_to_fill() -> None:
    answers: Answers = {re.compile("Sure"): {"ok": True}, re.compile(""): {"text": noise(40_000)}}
    assert (await User(shop(), answers, era=Era.LIVE).call("order")).text == "true"
