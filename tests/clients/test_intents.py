"""Calls with the same intent share one body and one result, whichever foreign client makes them."""

from pathlib import Path
from typing import Final

import pytest

from roundtrip.ledger import MemoryLedger
from roundtrip.testing import served
from tests.clients.drivers import Driver, Outcome, Target, ToolCall, driver_of, of_clients
from tests.clients.intent_shop import make_server, ran

pytestmark = pytest.mark.anyio

LANGGRAPH: Final = driver_of("LangChain 1.5 with LangGraph", "2026-07-28")
HIDES_META: Final = ("LangChain", "Pydantic AI")
"""Clients that give a tool's result without its `_meta`."""
PARTY: Final = ToolCall("party", {"order": "7"}, [{"value": 9}, {"value": 2}, {"value": 5}])
MOVE: Final = ToolCall("move", {"order": "7"}, [{"value": 3}, {"value": 40}, {"value": 6}, {"value": 2}])


async def outcomes_of(driver: Driver, folder: Path, *calls: ToolCall) -> list[Outcome]:
    """Make calls one after another to a new server that notes in a folder what ran."""
    await driver.prepare()
    # `inspector --cli` makes one call for each of its processes, and its driver runs them at once.
    runs = [[call] for call in calls] if driver.name.endswith("`--cli`") else [calls]
    async with served(make_server(folder, MemoryLedger())) as url:
        return [outcome for each in runs for outcome in await driver.run(Target(url=url), each)]


def check_recalled(driver: Driver, first: Outcome, again: Outcome) -> None:
    """Check that a later call got the first one's result, and that nobody was asked."""
    assert (again.text, again.data, again.error, list(again.asked)) == (first.text, first.data, None, [])
    assert first.recalled is None
    assert (again.recalled is None) == driver.name.startswith(HIDES_META)


async def test_client_that_begins_again_asks_each_of_three_questions_once(tmp_path: Path) -> None:
    first, again = await outcomes_of(LANGGRAPH, tmp_path, PARTY, ToolCall(PARTY.tool, PARTY.arguments))
    assert first.text == "book for 9 as number 1; party 7 with 9, 2, 5 as number 2", first.error
    assert list(first.asked) == ["How many guests?", "How many cakes for 9?", "How many candles on 2?"]
    check_recalled(LANGGRAPH, first, again)
    assert ran(tmp_path) == ["book for 9", "party 7 with 9, 2, 5"]


async def test_client_that_begins_again_runs_each_of_two_steps_once(tmp_path: Path) -> None:
    first, again = await outcomes_of(LANGGRAPH, tmp_path, MOVE, ToolCall(MOVE.tool, MOVE.arguments))
    steps = "vans for 3 as number 1; crew for 6 as number 2"
    assert first.text == f"{steps}; move 7 with 3, 40, 6, 2 as number 3", first.error
    questions = ["How many rooms?", "How many boxes for 3?", "How many lamps beside 40?", "Which floor for 6?"]
    assert list(first.asked) == questions
    check_recalled(LANGGRAPH, first, again)
    assert ran(tmp_path) == ["vans for 3", "crew for 6", "move 7 with 3, 40, 6, 2"]


@of_clients
async def test_body_runs_once_per_intent(driver: Driver, tmp_path: Path) -> None:
    ship, wrap = ToolCall("ship", {"order": "7"}), ToolCall("wrap", {"order": "7"}, [{"value": 3}])
    other, declined = ToolCall("ship", {"order": "8"}), ToolCall("wrap", {"order": "9"})
    willing = ToolCall("wrap", {"order": "9"}, [{"value": 4}])
    calls = (ship, ship, wrap, wrap, other, declined, willing)
    shipped, again, wrapped, once_more, second, refused, held = await outcomes_of(driver, tmp_path, *calls)
    assert shipped.text == "ship 7 as number 1", shipped.error
    check_recalled(driver, shipped, again)
    if wrapped.asked:
        assert wrapped.text == "wrap 7 in 3 as number 2", wrapped.error
        assert list(wrapped.asked) == ["How many sheets?"]
        check_recalled(driver, wrapped, once_more)
        assert ran(tmp_path) == ["ship 7", "wrap 7 in 3", "ship 8"]
    else:
        for failed in (wrapped, once_more):
            assert failed.error is not None
            assert "Client did not declare the form elicitation capability" in failed.error
        assert ran(tmp_path) == ["ship 7", "ship 8"]
    assert (second.error, second.recalled, list(second.asked)) == (None, None, [])
    # An agent must not ask again and again until its user agrees.
    assert (list(refused.asked), list(held.asked)) == (list(wrapped.asked), [])
    assert refused.error is not None
    assert held.error == refused.error


@pytest.mark.parametrize("name", [LANGGRAPH.name, "OpenAI Agents SDK 0.24"])
async def test_silent_tool_sends_no_round_that_the_client_refuses(name: str, tmp_path: Path) -> None:
    driver = driver_of(name, "2026-07-28")
    in_a_round, shipped = await outcomes_of(driver, tmp_path, ToolCall("ship_once"), ToolCall("ship", {"order": "7"}))
    # Without `once_per=`, a call of such a tool is identified by a round without questions.
    assert in_a_round.error is not None
    assert shipped.text == "ship 7 as number 1"
    assert ran(tmp_path) == ["ship 7"]
