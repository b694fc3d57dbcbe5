"""One tool, the same answers: both eras give the same result and walk the same states."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from mcp_types import CallToolResult
from pydantic import BaseModel, Field

from roundtrip import Elicit, ElicitationResult, Event, Resolve, Server, State
from roundtrip.testing import Era, Steps
from tests.kit.bookshop import bookshop
from tests.kit.players import Person, Reply, connect, roots, sample, text_of
from tests.kit.shops import Choice

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


class Number(BaseModel):
    number: int = Field(ge=0, le=9)


def family(trace: Steps) -> Server[Any]:
    """Return independent questions, one of which another needs, and one that accepts any answer."""
    server = Server[Any]("family", trace=trace)

    async def left() -> Elicit[Number]:
        return Elicit("Left?", Number)

    async def right() -> Elicit[Choice]:
        return Elicit("Right?", Choice)

    async def below(left: Annotated[Number, Resolve(left)]) -> Elicit[Number] | Number:
        return Elicit(f"Below {left.number}?", Number) if left.number else Number(number=0)

    @server.tool()
    async def ask(
        right: Annotated[ElicitationResult[Choice], Resolve(right)], below: Annotated[Number, Resolve(below)]
    ) -> str:
        return f"{right.action} {below.number}"

    return server


async def play(
    server: Server[Any],
    trace: Steps,
    era: Era,
    tool: str,
    arguments: dict[str, Any],
    replies: Mapping[str, list[Reply]],
) -> tuple[CallToolResult, list[tuple[State, Event, State, int]], list[dict[str, str]]]:
    queues = {message: iter(answers) for message, answers in replies.items()}
    person = Person(answer=lambda params: next(queues[params.message.split("\n")[0]]))
    async with connect(server, era, person, sampling_callback=sample, list_roots_callback=roots) as client:
        result = await client.call_tool(tool, arguments)
    # The SDK stamps results of the retry era with the server's name.
    result = result.model_copy(update={"meta": None})
    return result, [(step.source, step.event, step.target, step.round) for step in trace.steps], trace.asked


CONVERSATIONS: list[tuple[str, str, dict[str, Any], dict[str, list[Reply]]]] = [
    ("bookshop", "greet", {"name": "Ada"}, {}),
    ("bookshop", "order", {"title": "Dune"}, {"How many copies of Dune?": [{"copies": 2}]}),
    (
        "bookshop",
        "order",
        {"title": "Emma"},
        {"Emma is out of stock. Order anyway?": [{"confirm": True}], "How many copies of Emma?": [{"copies": 1}]},
    ),
    ("bookshop", "order", {"title": "Emma"}, {"Emma is out of stock. Order anyway?": ["decline"]}),
    ("bookshop", "present", {"title": "Emma"}, {"Emma is out of stock. Order anyway?": [{"confirm": True}]}),
    ("family", "ask", {}, {"Left?": [{"number": 3}], "Right?": [{"ok": True}], "Below 3?": [{"number": 1}]}),
    ("family", "ask", {}, {"Left?": [{"number": 0}], "Right?": ["cancel"]}),
    (
        "family",
        "ask",
        {},
        {"Left?": [{"number": 10}, {"number": -1}, {"number": 0}], "Right?": [{"ok": "?"}, {"ok": True}]},
    ),
    ("family", "ask", {}, {"Left?": [{"number": 10}] * 3, "Right?": [{"ok": True}]}),
]


async def test_both_eras_give_the_same_result_by_the_same_path() -> None:
    ends: dict[Era, list[Any]] = {Era.RETRY: [], Era.LIVE: []}
    for era, played in ends.items():
        for shop, tool, arguments, replies in CONVERSATIONS:
            trace = Steps()
            server = bookshop(trace=trace) if shop == "bookshop" else family(trace)
            played.append(await play(server, trace, era, tool, arguments, replies))
    assert ends[Era.RETRY] == ends[Era.LIVE]


async def test_a_call_of_two_rounds_walks_these_states(era: Era) -> None:
    trace = Steps()
    replies: dict[str, list[Reply]] = {
        "Emma is out of stock. Order anyway?": [{"confirm": True}],
        "How many copies of Emma?": [{"copies": 1}],
    }
    result, steps, asked = await play(bookshop(trace=trace), trace, era, "order", {"title": "Emma"}, replies)
    assert text_of(result) == "1 x Emma, in 2-3 weeks"
    assert trace.states == TWO_ROUNDS
    assert [round for *_, round in steps] == [0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert asked == [{"confirm_backorder": "new"}, {"how_many": "new"}]
