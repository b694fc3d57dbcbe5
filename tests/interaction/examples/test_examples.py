"""The bookshop's four steps, each through a real client on both eras."""

from pathlib import Path
from typing import Any

import pytest

from examples.bookshop import ask, build_on, look_up, take_no
from roundtrip import Server
from roundtrip.testing import CANCEL, DECLINE, Answers, Era, User
from tests.kit.players import connect

pytestmark = pytest.mark.anyio

STEPS: dict[str, Server[Any]] = {
    "look_up.py": look_up.server,
    "build_on.py": build_on.server,
    "ask.py": ask.server,
    "take_no.py": take_no.server,
}


async def said(
    server: Server[Any], era: Era, title: str, answers: Answers | None = None, *, tool: str = "order"
) -> str:
    call = await User(server, answers, era=era).call(tool, title=title)
    assert not call.is_error
    return call.text


async def test_look_up_fills_a_parameter_from_the_shelf(era: Era) -> None:
    kept = await said(look_up.server, era, "Persuasion", tool="set_aside")
    assert kept == "A copy of Persuasion is set aside; 2 left."
    gone = await said(look_up.server, era, "Middlemarch", tool="set_aside")
    assert gone == "There is no copy of Middlemarch left."


async def test_build_on_fills_a_parameter_from_another(era: Era) -> None:
    assert await said(build_on.server, era, "Persuasion") == "Persuasion comes from our shelf and is ready in 1 day(s)."
    late = await said(build_on.server, era, "Middlemarch")
    assert late == "Middlemarch comes from the publisher and is ready in 14 day(s)."


async def test_ask_asks_only_where_the_answer_matters(era: Era) -> None:
    assert await said(ask.server, era, "Persuasion") == "Persuasion is yours today."
    waits = await said(ask.server, era, "Middlemarch", {"ask_for_patience": {"will_wait": True}})
    assert waits == "Middlemarch is ordered from the publisher."
    leaves = await said(ask.server, era, "Middlemarch", {"ask_for_patience": {"will_wait": False}})
    assert leaves == "Middlemarch is not ordered."


async def test_ask_ends_the_call_of_a_silent_customer() -> None:
    result = await User(ask.server, {"ask_for_patience": DECLINE}).call("order", {"title": "Middlemarch"})
    assert result.is_error
    assert result.text == (
        "Error executing tool order: Resolver for parameter 'patience' could not resolve: elicitation was decline"
    )


async def test_take_no_completes_for_any_customer(era: Era) -> None:
    server = take_no.server
    assert await said(server, era, "Persuasion") == "Persuasion is yours today."
    assert (
        await said(server, era, "Middlemarch", {"ask_for_patience": {"will_wait": True}})
        == "Middlemarch is ordered from the publisher."
    )
    other = "Middlemarch is not ordered. Readers of it also like Persuasion."
    assert await said(server, era, "Middlemarch", {"ask_for_patience": {"will_wait": False}}) == other
    assert await said(server, era, "Middlemarch", {"ask_for_patience": DECLINE}) == other
    assert (
        await said(server, era, "Middlemarch", {"ask_for_patience": CANCEL})
        == "Nothing is ordered; ask again whenever it suits."
    )


async def test_the_model_sees_the_title_and_nothing_else() -> None:
    seen: dict[str, list[str]] = {}
    for step, server in STEPS.items():
        async with connect(server, Era.RETRY) as client:
            (tool,) = (await client.list_tools()).tools
        seen[step] = list(tool.input_schema["properties"])
    assert seen == {step: ["title"] for step in STEPS}


def test_every_step_is_a_program() -> None:
    bookshop = Path(look_up.__file__).parent
    assert {path.name for path in bookshop.glob("*.py")} == set(STEPS)
    texts = {step: (bookshop / step).read_text(encoding="utf-8") for step in STEPS}
    assert [step for step, text in texts.items() if f"python examples/bookshop/{step}" not in text] == []
