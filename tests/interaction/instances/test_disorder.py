"""Legs that arrive twice, late, out of order, or with another leg's answers."""

import itertools
from typing import Any

import pytest
from mcp_types import CallToolResult, InputRequiredResult

from roundtrip import Event, Server
from roundtrip.testing import Clock, LegByLeg, Steps, User
from tests.kit.instances import ROUNDS, shop

pytestmark = pytest.mark.anyio
ARGUMENTS = {"title": "Dune"}


async def tokens_of(server: Server[Any]) -> list[str]:
    """Return the state of each question round of one whole call, whose legs then arrive again."""
    call = await User(server, ROUNDS).call("order", ARGUMENTS)
    return [token or "" for token in call.tokens]


async def leg(server: Server[Any], number: int, tokens: list[str]) -> CallToolResult | InputRequiredResult:
    return await LegByLeg([server]).leg("order", ARGUMENTS, answers=ROUNDS[number], state=tokens[number])


def copies_in(result: CallToolResult | InputRequiredResult) -> int:
    assert isinstance(result, CallToolResult)
    assert result.structured_content is not None
    return result.structured_content["copies"]


async def test_repeated_last_leg_runs_the_body_twice() -> None:
    """Shows S5."""
    trace = Steps()
    server = shop(trace=trace)
    assert copies_in(await leg(server, 2, await tokens_of(server))) == 3
    assert trace.events.count(Event.FINISH) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_legs_in_any_order_each_give_what_they_gave_before(order: tuple[int, ...]) -> None:
    server = shop()
    tokens = await tokens_of(server)
    given: dict[int, Any] = {}
    for number in order:
        result = await leg(server, number, tokens)
        given[number] = copies_in(result) if isinstance(result, CallToolResult) else list(result.input_requests or {})
    assert given == {0: ["how_many"], 1: ["wrap"], 2: 3}


async def test_old_state_with_later_answers_asks_its_own_question_again() -> None:
    """Shows S7 and S8."""
    server = shop()
    tokens = await tokens_of(server)
    result = await LegByLeg([server]).leg("order", ARGUMENTS, answers=ROUNDS[2], state=tokens[0])
    assert isinstance(result, InputRequiredResult)
    assert list(result.input_requests or {}) == ["sure"]


async def test_call_resumes_from_an_earlier_round_with_another_answer() -> None:
    server = shop()
    tokens = await tokens_of(server)
    hopper = LegByLeg([server])
    await hopper.leg("order", ARGUMENTS, answers={"how_many": {"copies": 8}}, state=tokens[1])
    result = await hopper.leg("order", ARGUMENTS, answers=ROUNDS[2], state=hopper.token)
    assert copies_in(result) == 8


@pytest.mark.parametrize("skews", [(30, -30, 30, -30), (-30, 30, -30, 30), (0, -59, 0, -59)])
async def test_instances_whose_clocks_disagree_serve_each_other_s_legs(clock: Clock, skews: tuple[int, ...]) -> None:
    noon = clock.now
    servers = [shop() for _ in skews]
    hopper = LegByLeg(servers)
    result: Any = None
    for number, skew in enumerate(skews):
        clock.now = noon + skew
        answers = ROUNDS[number - 1] if number else None
        state = hopper.token if number else None
        result = await hopper.leg("order", ARGUMENTS, answers=answers, state=state)
    assert isinstance(result, CallToolResult)
