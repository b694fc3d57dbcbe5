"""Limits of a call: its memory, its rounds and its age, and the errors beyond them."""

import logging
import random
import re
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult
from pydantic import BaseModel

from roundtrip import Context, Elicit, Event, Resolve, Server
from roundtrip.errors import CallOutlived
from roundtrip.testing import Answers, Era, LegByLeg, Steps, User
from tests.kit.hosts import WAIT
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
        a: Annotated[Essay, Resolve(asker("a"), name="a")],
        b: Annotated[Essay, Resolve(asker("b"), name="b")],
        c: Annotated[Essay, Resolve(asker("c"), name="c")],
        d: Annotated[Essay, Resolve(asker("d"), name="d")],
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


# Clients on 2026-07-28 stop after 10 rounds: the log warns before, and the kit's users stop there.


def asking(rounds: int, **options: Any) -> Server[Any]:
    server = Server[Any]("shop")

    @server.tool(**options)
    async def chat(ctx: Context) -> str:
        for number in range(rounds):
            await ctx.ask(f"item-{number}", "More?", bool)
        return "done"

    return server


def answers(rounds: int) -> dict[str, bool]:
    return {f"item-{number}": True for number in range(rounds)}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_rounds_from_the_eighth_on_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert (await User(asking(10), answers(10), era=Era.RETRY).call("chat")).value == "done"
    lines = warned(caplog)
    assert [f"tool 'chat' asks in round {number} of one call" in line for number, line in enumerate(lines, 8)] == [
        True
    ] * 3
    assert "stop after round 10" in lines[0]
    assert "ctx.ask_all" in lines[0]


@pytest.mark.parametrize(("era", "rounds"), [(Era.RETRY, 7), (Era.LIVE, 12)])
async def test_seven_or_live_rounds_are_no_matter_for_the_log(
    era: Era, rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await User(asking(rounds), answers(rounds), era=era).call("chat")).value == "done"
    assert warned(caplog) == []


async def test_user_stops_after_ten_rounds() -> None:
    with pytest.raises(AssertionError, match=r"still asks after 10 rounds: .*'item-9'.*max_rounds="):
        await User(asking(11), answers(11), era=Era.RETRY).call("chat")


async def test_task_that_never_stops_asking_is_told_to_end_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundtrip.testing.users._MAX_TASK_ROUNDS", 3)
    said = r"still asks after 3 rounds: .*'item-2'.*\. End its loop, or ask in fewer rounds \(ctx\.ask_all, .*\)$"
    with pytest.raises(AssertionError, match=said):
        await User(asking(5, task=True), answers(5), era=Era.TASK).call("chat")


def test_user_without_any_round_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_rounds= must be at least 1, got 0"):
        User(asking(1), max_rounds=0)


# Live clients that stay and never answer: the server releases what they hold in the end.


LIVES = 0.3


async def think_for_ever(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    del context, params
    await anyio.sleep_forever()
    raise AssertionError


async def told(body: Callable[..., Any]) -> str:
    server = Server[Any]("shop", ttl=LIVES, max_age=LIVES)
    server.tool(body)
    with anyio.fail_after(WAIT):
        async with Client(server, mode=Era.LIVE.value, elicitation_callback=think_for_ever) as client:
            return text_of(await client.call_tool(body.__name__, {}))


async def asks(ctx: Context) -> str:
    return str(await ctx.ask_outcome("how_many", "How many?", int))


def asks_in_a_thread(ctx: Context) -> str:
    return str(ctx.blocking.ask_outcome("how_many", "How many?", int))


async def goes_on_without_the_answer(ctx: Context) -> str:
    try:
        await ctx.ask("how_many", "How many?", int)
    except CallOutlived as error:
        return f"without {', '.join(error.names)}"
    return "with it"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (asks, "the call has exceeded its max_age and still has questions: 'how_many'"),
        (asks_in_a_thread, "the call has exceeded its max_age"),
        (goes_on_without_the_answer, "without how_many"),
    ],
)
async def test_a_call_ends_at_its_whole_age(body: Callable[..., Any], said: str) -> None:
    assert said in await told(body)
