"""Accept, decline, cancel: what a consumer of the bare value is spared, and what a consumer of the outcome sees."""

from typing import Annotated, Any

import pytest

from roundtrip import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    Event,
    Resolve,
    Server,
    State,
)
from tests.interaction.bookshop import Backorder, bookshop
from tests.players import Era, Person, Trace, call, connect, text_of

pytestmark = pytest.mark.anyio
OUT_OF_STOCK = {"title": "Neuromancer"}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_ends_the_call_with_a_text_that_the_model_can_read(era: Era, action: str) -> None:
    trace = Trace()
    result = await call(bookshop(trace=trace), era, "order", OUT_OF_STOCK, action)
    assert result.is_error
    assert text_of(result) == (
        f"Error executing tool order: Resolver for parameter 'backorder' could not resolve: elicitation was {action}"
    )
    assert trace.path[-2:] == [State.RESOLVING, State.REFUSED]
    assert Event.EXECUTE not in trace.events


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_consumer_of_the_outcome_goes_on_after_a_refusal(era: Era, action: str) -> None:
    result = await call(bookshop(), era, "consider", OUT_OF_STOCK, action)
    assert not result.is_error
    assert text_of(result) == f"Neuromancer: {action}"


async def test_a_consumer_of_the_outcome_finds_the_accepted_data_in_it(era: Era) -> None:
    assert text_of(await call(bookshop(), era, "consider", OUT_OF_STOCK, {"confirm": False})) == "Neuromancer: False"


async def test_a_consumer_of_the_outcome_gets_a_computed_value_as_accepted(era: Era) -> None:
    assert text_of(await call(bookshop(), era, "consider", {"title": "Dune"})) == "Dune: True"


async def test_outcomes_are_the_sdk_s_own_classes_whatever_members_the_annotation_names(era: Era) -> None:
    server = Server("shop")
    seen: list[Any] = []

    async def first() -> Elicit[Backorder]:
        return Elicit("First?", Backorder)

    async def second() -> Elicit[Backorder]:
        return Elicit("Second?", Backorder)

    async def third() -> Elicit[Backorder]:
        return Elicit("Third?", Backorder)

    @server.tool()
    async def order(
        a: Annotated[ElicitationResult[Backorder], Resolve(first)],
        b: Annotated[AcceptedElicitation[Backorder] | DeclinedElicitation, Resolve(second)],
        c: Annotated[CancelledElicitation, Resolve(third)],
    ) -> str:
        seen.extend((a, b, c))
        return "done"

    replies = {"First?": {"confirm": True}, "Second?": "decline", "Third?": "cancel"}
    assert text_of(await call(server, era, "order", answer=lambda params: replies[params.message])) == "done"
    kinds = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)
    assert [isinstance(outcome, kind) for outcome, kind in zip(seen, kinds, strict=True)] == [True, True, True]
    assert seen[0].data == Backorder(confirm=True)


async def test_a_refusal_deep_in_the_graph_names_the_parameter_that_wanted_the_value(era: Era) -> None:
    server = Server("shop")

    async def ask() -> Elicit[Backorder]:
        return Elicit("Really?", Backorder)

    async def middle(answer: Annotated[Backorder, Resolve(ask)]) -> bool:
        return answer.confirm

    @server.tool()
    async def order(outer: Annotated[bool, Resolve(middle)]) -> str:
        return str(outer)

    result = await call(server, era, "order", {}, "decline")
    assert text_of(result) == (
        "Error executing tool order: Resolver for parameter 'answer' could not resolve: elicitation was decline"
    )


async def test_one_answer_serves_a_consumer_of_the_value_and_one_of_the_outcome(era: Era) -> None:
    server = Server("shop")

    async def ask() -> Elicit[Backorder]:
        return Elicit("Really?", Backorder)

    @server.tool()
    async def order(
        plain: Annotated[Backorder, Resolve(ask)], full: Annotated[ElicitationResult[Backorder], Resolve(ask)]
    ) -> str:
        return f"{plain.confirm} {full.action}"

    person = Person({"confirm": True})
    async with connect(server, era, person) as client:
        assert text_of(await client.call_tool("order")) == "True accept"
    assert person.messages == ["Really?"]


async def test_after_a_decisive_refusal_a_live_client_is_spared_the_rest_of_the_batch() -> None:
    server = Server("shop")

    async def first() -> Elicit[Backorder]:
        return Elicit("First?", Backorder)

    async def second() -> Elicit[Backorder]:
        return Elicit("Second?", Backorder)

    @server.tool()
    async def order(a: Annotated[Backorder, Resolve(first)], b: Annotated[Backorder, Resolve(second)]) -> str:
        return f"{a} {b}"

    person = Person("decline")
    async with connect(server, Era.LIVE, person) as client:
        result = await client.call_tool("order")
    assert result.is_error
    assert person.messages == ["First?"]
