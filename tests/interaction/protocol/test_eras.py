"""One tool, the same answers: both eras give the same result and walk the same states."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import CallToolResult

from roundtrip import State
from roundtrip.testing import Era, Steps
from tests.kit.bookshop import bookshop
from tests.kit.players import Person, Reply, connect, roots, sample, text_of

pytestmark = pytest.mark.anyio

TWO_ROUNDS = [
    State.RECEIVED,
    State.RESOLVING,
    State.AWAITING_INPUT,
    State.RESUMED,
    State.RESOLVING,
    State.AWAITING_INPUT,
    State.RESUMED,
    State.RESOLVING,
    State.EXECUTING,
    State.COMPLETED,
]


async def play(
    era: Era, tool: str, arguments: dict[str, Any], replies: Mapping[str, list[Reply]]
) -> tuple[CallToolResult, Steps]:
    trace, queues = Steps(), {message: iter(answers) for message, answers in replies.items()}
    person = Person(answer=lambda params: next(queues[params.message.split("\n")[0]]))
    options: dict[str, Any] = {"sampling_callback": sample, "list_roots_callback": roots}
    async with connect(bookshop(trace=trace), era, person, **options) as client:
        result = await client.call_tool(tool, arguments)
    # The SDK stamps results of the retry era with the server's name.
    return result.model_copy(update={"meta": None}), trace


OUT, COPIES = "Emma is out of stock. Order anyway?", "How many copies of Emma?"
EMMA = {"title": "Emma"}
CONVERSATIONS: list[tuple[str, dict[str, Any], dict[str, list[Reply]]]] = [
    ("greet", {"name": "Ada"}, {}),
    ("order", {"title": "Dune"}, {"How many copies of Dune?": [{"copies": 2}]}),
    ("order", EMMA, {OUT: [{"confirm": True}], COPIES: [{"copies": 1}]}),
    ("order", EMMA, {OUT: ["decline"]}),
    ("order", EMMA, {OUT: [{"confirm": "?"}, {"confirm": True}], COPIES: [{"copies": "several"}, {"copies": 1}]}),
    ("order", EMMA, {OUT: [{"confirm": "?"}] * 3}),
    ("consider", EMMA, {OUT: ["cancel"]}),
    ("present", EMMA, {OUT: [{"confirm": True}]}),
    ("present", EMMA, {OUT: [{"confirm": "?"}, {"confirm": True}]}),
]
"""Tools, arguments, and the answers to each question."""


async def test_both_eras_give_the_same_result_by_the_same_path() -> None:
    ends: dict[Era, list[Any]] = {Era.RETRY: [], Era.LIVE: []}
    for era, played in ends.items():
        for conversation in CONVERSATIONS:
            result, trace = await play(era, *conversation)
            path = [(step.source, step.event, step.target, step.round) for step in trace.transitions]
            played.append((result, path, trace.asked))
    assert ends[Era.RETRY] == ends[Era.LIVE]


async def test_a_call_of_two_rounds_walks_these_states(era: Era) -> None:
    result, trace = await play(era, "order", EMMA, {OUT: [{"confirm": True}], COPIES: [{"copies": 1}]})
    assert text_of(result) == "1 x Emma, in 2-3 weeks"
    assert trace.states == TWO_ROUNDS
    assert [step.round for step in trace.transitions] == [0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert trace.asked == [{"confirm_backorder": "new"}, {"how_many": "new"}]
