"""A wizard of dependent questions in one body: each asked and computed once, on any instance."""

from collections.abc import Mapping
from typing import Any

import pytest

from roundtrip import Server, State
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era, LegByLeg, Restart, Steps, User
from tests.interaction.bodies.travel import SECRET, Books
from tests.kit.players import Reply, text_of
from tests.kit.token_readings import readings

pytestmark = pytest.mark.anyio

ROUNDS: list[Mapping[str, Reply]] = [
    {"trip": {"city": "Rome", "travellers": 2}},
    {"traveller-0": {"name": "Ada"}},
    {"traveller-1": {"name": "Bob"}},
    {"payment": {"how": "card"}},
    {"card": {"value": "v"}},
    {"sure": {"value": True}},
]
MESSAGES = [
    "Where to, and how many?",
    "Who is traveller 1?",
    "Who is traveller 2?",
    "202 for Ada and Bob. How to pay?",
    "Which card?",
    "Charge 202 for R202 to card v?",
]
RESULT = "R202: Ada, Bob to Rome for 202, card v: True"


async def test_wizard_with_loop_and_branch_asks_each_question_once(era: Era) -> None:
    """Shows S2."""
    books = Books()
    call = await User(books.agency(), ROUNDS, era=era).call("book")
    assert call.text == RESULT
    assert call.asked == MESSAGES
    assert books.ran == {"quote": 1, "reserve": 1}


async def test_wizard_hopping_between_servers_runs_each_step_once() -> None:
    """Shows S2."""
    books = Books()
    servers: list[Server[Any]] = []

    def fresh() -> Server[Any]:
        servers.append(books.agency())
        return servers[-1]

    call = await User(fresh, ROUNDS, network=Restart()).call("book")
    assert call.text == RESULT
    assert len(servers) == len(ROUNDS) + 1
    assert [[question.name for question in round_] for round_ in call.rounds] == [list(replies) for replies in ROUNDS]
    assert books.ran == {"quote": 1, "reserve": 1}


async def test_other_branch_and_empty_loop_ask_other_questions(era: Era) -> None:
    books = Books()
    call = await User(
        books.agency(),
        {
            "trip": {"city": "Oslo", "travellers": 0},
            "payment": {"how": "invoice"},
            "address": {"value": "Main St 1"},
            "sure": {"value": False},
        },
        era=era,
    ).call("book")
    assert call.text == "R0:  to Oslo for 0, Main St 1: False"
    assert len(call.questions) == 4


async def test_the_path_of_states_is_the_same_on_both_eras() -> None:
    paths: dict[Era, list[State]] = {}
    asked: dict[Era, list[dict[str, str]]] = {}
    for era in ERAS:
        trace = Steps()
        await User(Books().agency(trace), ROUNDS, era=era).call("book")
        paths[era], asked[era] = trace.states, trace.asked
    again = [State.AWAITING_INPUT, State.RESUMED, State.RESOLVING, State.EXECUTING]
    assert paths[Era.RETRY] == paths[Era.LIVE]
    assert paths[Era.LIVE] == [
        State.RECEIVED,
        State.RESOLVING,
        State.EXECUTING,
        *again * len(ROUNDS),
        State.COMPLETED,
    ]
    assert asked[Era.RETRY] == asked[Era.LIVE] == [dict.fromkeys(replies, "new") for replies in ROUNDS]


async def test_questions_asked_together_form_one_round_on_both_eras() -> None:
    """Shows S3."""
    paths: dict[Era, list[State]] = {}
    for era in ERAS:
        trace = Steps()
        call = await User(Books().agency(trace), {"left": 1, "right": 2, "third": 3}, era=era).call("compare")
        assert call.text == "1 2 3"
        assert call.asked == ["Left?", "Right?", "Third?"]
        assert trace.asked == [{"left": "new", "right": "new"}, {"third": "new"}]
        paths[era] = trace.states
    assert paths[Era.RETRY] == paths[Era.LIVE]


async def test_only_the_missing_answer_of_a_round_is_asked_again() -> None:
    """Shows S7."""
    hopper = LegByLeg(Books().agency)
    await hopper.leg("compare")
    await hopper.leg("compare", answers={"right": {"value": 2}, "unknown": {"value": 9}}, state=hopper.token)
    assert list(hopper.questions) == ["left"]
    await hopper.leg("compare", answers={"left": {"value": 1}}, state=hopper.token)
    result = await hopper.leg("compare", answers={"third": {"value": 3}}, state=hopper.token)
    assert text_of(result) == "1 2 3"


async def test_step_result_is_unreadable_in_the_token() -> None:
    """Shows S4."""
    hopper = LegByLeg(Books().agency)
    await hopper.leg("book")
    for replies in ROUNDS[:-1]:
        await hopper.leg("book", answers=replies, state=hopper.token)
        for text in readings(hopper.token):
            assert SECRET.encode() not in text
            assert b"R202" not in text
