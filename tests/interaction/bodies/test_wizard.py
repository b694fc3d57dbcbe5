"""A wizard of dependent questions in one body: each asked and computed once, whatever instance serves the leg."""

from collections.abc import Mapping
from typing import Any

import pytest

from roundtrip import Server, State
from tests.interaction.bodies.travel import SECRET, Books
from tests.interaction.test_once import readings
from tests.players import Era, Hopper, Person, Reply, Trace, connect, text_of

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


def person_of(rounds: list[Mapping[str, Reply]]) -> Person:
    return Person(*(reply for replies in rounds for reply in replies.values()))


async def test_a_wizard_with_a_loop_and_a_branch_asks_each_question_once_in_both_eras(era: Era) -> None:
    """Shows S2."""
    books = Books()
    person = person_of(ROUNDS)
    async with connect(books.agency(), era, person) as client:
        assert text_of(await client.call_tool("book")) == RESULT
    assert person.messages == MESSAGES
    assert books.ran == {"quote": 1, "reserve": 1}


async def test_each_leg_on_a_server_of_its_own_asks_once_and_runs_each_step_once() -> None:
    """Shows S2."""
    books = Books()
    servers: list[Server[Any]] = []

    def fresh() -> Server[Any]:
        servers.append(books.agency())
        return servers[-1]

    hopper = Hopper(fresh)
    assert text_of(await hopper.play("book", None, ROUNDS)) == RESULT
    assert len(servers) == len(ROUNDS) + 1
    assert [list(leg.input_requests or {}) for leg in hopper.legs] == [list(replies) for replies in ROUNDS]
    assert books.ran == {"quote": 1, "reserve": 1}


async def test_the_other_branch_and_a_loop_of_no_rounds_ask_other_questions(era: Era) -> None:
    books = Books()
    person = Person({"city": "Oslo", "travellers": 0}, {"how": "invoice"}, {"value": "Main St 1"}, {"value": False})
    async with connect(books.agency(), era, person) as client:
        assert text_of(await client.call_tool("book")) == "R0:  to Oslo for 0, Main St 1: False"
    assert len(person.asked) == 4


async def test_the_path_of_states_is_the_same_on_both_eras() -> None:
    paths: dict[Era, list[State]] = {}
    asked: dict[Era, list[dict[str, str]]] = {}
    for era in Era:
        trace = Trace()
        async with connect(Books().agency(trace), era, person_of(ROUNDS)) as client:
            await client.call_tool("book")
        paths[era], asked[era] = trace.path, trace.asked
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


async def test_questions_asked_together_are_one_round_by_the_same_path_on_both_eras() -> None:
    """Shows S3."""
    paths: dict[Era, list[State]] = {}
    for era in Era:
        trace = Trace()
        person = Person({"value": 1}, {"value": 2}, {"value": 3})
        async with connect(Books().agency(trace), era, person) as client:
            assert text_of(await client.call_tool("compare")) == "1 2 3"
        assert person.messages == ["Left?", "Right?", "Third?"]
        assert trace.asked == [{"left": "new", "right": "new"}, {"third": "new"}]
        paths[era] = trace.path
    assert paths[Era.RETRY] == paths[Era.LIVE]


async def test_a_missing_answer_of_a_round_is_asked_again_alone_and_the_other_is_kept() -> None:
    """Shows S7."""
    hopper = Hopper(Books().agency)
    await hopper.leg("compare")
    await hopper.leg("compare", answers={"right": {"value": 2}, "unknown": {"value": 9}}, state=hopper.token)
    assert list(hopper.questions) == ["left"]
    await hopper.leg("compare", answers={"left": {"value": 1}}, state=hopper.token)
    result = await hopper.leg("compare", answers={"third": {"value": 3}}, state=hopper.token)
    assert text_of(result) == "1 2 3"


async def test_a_random_result_of_a_step_is_the_same_in_every_later_question_and_in_the_result() -> None:
    books = Books()
    # Whoever else asks for a quote in between gets another one.
    other = Hopper(books.agency)
    hopper = Hopper(books.agency)
    await hopper.leg("book")
    for replies in ROUNDS[:3]:
        await hopper.leg("book", answers=replies, state=hopper.token)
    await other.play("book", None, [{"trip": {"city": "Oslo", "travellers": 0}}, *[{"payment": "decline"}]])
    assert books.ran["quote"] == 2
    for replies in ROUNDS[3:-1]:
        await hopper.leg("book", answers=replies, state=hopper.token)
    assert text_of(await hopper.leg("book", answers=ROUNDS[-1], state=hopper.token)) == RESULT
    assert books.ran["quote"] == 2


async def test_what_a_step_computed_cannot_be_read_from_the_token() -> None:
    """Shows S4."""
    hopper = Hopper(Books().agency)
    await hopper.leg("book")
    for replies in ROUNDS[:-1]:
        await hopper.leg("book", answers=replies, state=hopper.token)
        for text in readings(hopper.token):
            assert SECRET.encode() not in text
            assert b"R202" not in text
