"""`fallback=` in bodies: the substitute for an answer that the client cannot give, fixed for the call and sealed."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, ListRootsResult, TextContent
from pydantic import BaseModel

from roundtrip import Context, Elicit, ListRoots, Sample
from roundtrip.testing import DECLINE, Era, LegByLeg, Steps, User, served
from tests.interaction.bodies.shops import LEFT, shop
from tests.kit.players import sample, text_of
from tests.kit.token_readings import readings

pytestmark = pytest.mark.anyio


class Choice(BaseModel):
    ok: bool
    note: str = ""


def at_once() -> Choice:
    return Choice(ok=False, note="sync")


async def in_a_while() -> Choice:
    return Choice(ok=False, note="async")


@pytest.mark.parametrize(
    ("fallback", "note"), [(Choice(ok=False, note="value"), "value"), (at_once, "sync"), (in_a_while, "async")]
)
async def test_value_or_function_result_stands_in_for_a_form(
    fallback: Choice | Callable[[], Choice] | Callable[[], Awaitable[Choice]], note: str
) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        answer = await ctx.ask_outcome("sure", "Sure?", Choice, fallback=fallback)
        return f"{answer.action} {answer.data.note}" if answer.action == "accept" else answer.action

    assert (await User(shop(body), era=Era.RETRY, client="no-elicitation").call("order")).text == f"accept {note}"
    # Who can be asked is asked.
    willing = User(shop(body), {"sure": {"ok": True, "note": "own"}}, era=Era.RETRY)
    assert (await willing.call("order")).text == "accept own"
    assert (await User(shop(body), {"sure": DECLINE}, era=Era.RETRY).call("order")).text == "decline"


async def test_model_question_and_form_fallback_reach_a_client_without_forms(era: Era) -> None:
    """Shows S6."""

    async def body(ctx: Context[Any, Any]) -> str:
        answers = await ctx.ask_all(
            {
                "sure": Elicit("Sure?", Choice, fallback=Choice(ok=False, note="fallback")),
                "blurb": Sample("Praise Dune", max_tokens=5),
                "roots": ListRoots(fallback=ListRootsResult(roots=[])),
            }
        )
        return f"{answers['sure'].note}, {answers['blurb'].content.text}, {len(answers['roots'].roots)}"

    trace = Steps()
    user = User(shop(body, trace=trace), {"blurb": "great"}, era=era, missing_capabilities=["elicitation"])
    assert (await user.call("order")).text == "fallback, great, 0"
    assert trace.asked == [{"blurb": "new"}]


async def test_fallback_is_computed_once_and_sealed() -> None:
    numbers = itertools.count(1)

    def note() -> Choice:
        return Choice(ok=True, note=f"SECRET-NUMBER-{next(numbers)}")

    async def body(ctx: Context[Any, Any]) -> str:
        choice = await ctx.ask("sure", "Sure?", Choice, fallback=note)
        first = await ctx.sample("One", name="one")
        second = await ctx.sample(f"Two, after {choice.note[-1]}", name="two")
        return f"{choice.note} {first.text} {second.text}"

    server = shop(body)
    hopper = LegByLeg([server], elicitation_callback=None, sampling_callback=sample)
    said = CreateMessageResult(role="assistant", content=TextContent(type="text", text="hm"), model="m")
    await hopper.leg("order")
    await hopper.leg("order", answers={"one": said}, state=hopper.token)
    for text in readings(hopper.token):
        assert b"SECRET" not in text
    result = await hopper.leg("order", answers={"two": said}, state=hopper.token)
    assert text_of(result) == "SECRET-NUMBER-1 hm hm"


async def test_fallback_holds_when_a_later_client_could_be_asked() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        choice = await ctx.ask("sure", "Sure?", Choice, fallback=Choice(ok=False, note="fallback"))
        said = await ctx.sample("One", name="one")
        return f"{choice.note} {said.text}"

    server = shop(body)
    alone = LegByLeg([server], elicitation_callback=None, sampling_callback=sample)
    await alone.leg("order")
    said = CreateMessageResult(role="assistant", content=TextContent(type="text", text="hm"), model="m")
    result = await LegByLeg([server]).leg("order", answers={"one": said}, state=alone.token)
    assert text_of(result) == "fallback hm"


def wrong() -> Any:
    return "not a choice"


@pytest.mark.parametrize("fallback", [wrong, "neither"])
async def test_invalid_fallback_is_a_clear_error(fallback: Callable[[], Any]) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        await ctx.ask("sure", "Sure?", Choice, fallback=fallback)
        return "never"

    call = await User(shop(body), era=Era.RETRY, missing_capabilities=["elicitation"]).call("order")
    assert "the value of 'sure' cannot be remembered: fallback= gave a value of type str" in call.text
    assert "Give fallback= a value that a client could send" in call.text


async def test_older_client_without_a_channel_gets_fallback_or_explained_error() -> None:
    async def body(ctx: Context[Any, Any], fallback: bool) -> int:
        question = Elicit("Left?", int, fallback=0) if fallback else LEFT
        return await ctx.ask("left", question)

    async with served(shop(body), json_response=True) as url:
        user = User(url, era=Era.LIVE)
        assert (await user.call("order", fallback=True)).text == "0"
        with pytest.raises(MCPError, match="cannot ask 'left'"):
            await user.call("order", fallback=False)
