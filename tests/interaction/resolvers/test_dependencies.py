"""Parameters filled by functions: unforgeable, asked for only if needed, and what a decline or cancel gives them."""

from typing import Annotated

import pytest

from roundtrip import Elicit, Event, Resolve, Server, State
from roundtrip.testing import DECLINE, Era, Steps, User
from roundtrip.testing.scripts import UserAction
from tests.kit.bookshop import Backorder, bookshop

pytestmark = pytest.mark.anyio


async def test_a_client_cannot_answer_ahead_by_naming_the_asking_parameter(era: Era) -> None:
    arguments = {"title": "Neuromancer", "backorder": {"confirm": True}, "copies": {"copies": 5}}
    result = await User(bookshop(), {"confirm_backorder": DECLINE}, era=era).call("order", arguments)
    assert result.is_error


async def test_resolver_knowing_the_answer_asks_no_user() -> None:
    made = await User(bookshop(), {"how_many": {"copies": 2}}, era=Era.RETRY).call("order", {"title": "Dune"})
    assert made.text == "2 x Dune, now"
    assert made.asked == ["How many copies of Dune?"]


async def test_resolver_finds_an_argument_renamed_by_the_sdk() -> None:
    server = Server("shop")

    # Both are attributes of Pydantic's models, so the SDK's argument model calls its fields otherwise.
    async def loud(copy: str, json: str) -> str:
        return f"{copy} {json}".upper()

    @server.tool()
    async def order(copy: str, json: str, loud: Annotated[str, Resolve(loud)]) -> str:
        return f"{copy} {json} {loud}"

    assert (await User(server, era=Era.RETRY).call("order", {"copy": "a", "json": "b"})).text == "a b A B"


OUT_OF_STOCK = {"title": "Neuromancer"}


@pytest.mark.parametrize(("era", "action"), [(Era.RETRY, "decline"), (Era.LIVE, "cancel")])
async def test_declining_ends_the_call_with_readable_text(era: Era, action: str) -> None:
    trace = Steps()
    result = await User(bookshop(trace=trace), {"confirm_backorder": UserAction(action)}, era=era).call(
        "order", OUT_OF_STOCK
    )
    assert result.is_error
    assert result.text == (
        f"Error executing tool order: Resolver for parameter 'backorder' could not resolve: elicitation was {action}"
    )
    assert trace.states[-2:] == [State.RESOLVING, State.DECLINED]
    assert Event.EXECUTE not in trace.events


@pytest.mark.parametrize(("era", "action"), [(Era.RETRY, "decline"), (Era.LIVE, "cancel")])
async def test_outcome_consumer_continues_after_a_decline(era: Era, action: str) -> None:
    result = await User(bookshop(), {"confirm_backorder": UserAction(action)}, era=era).call("consider", OUT_OF_STOCK)
    assert not result.is_error
    assert result.text == f"Neuromancer: {action}"


async def test_outcome_consumer_receives_the_accepted_data() -> None:
    assert (
        await User(bookshop(), {"confirm_backorder": {"confirm": False}}, era=Era.RETRY).call("consider", OUT_OF_STOCK)
    ).text == "Neuromancer: False"
    assert (await User(bookshop(), era=Era.RETRY).call("consider", {"title": "Dune"})).text == "Dune: True"


async def test_decisive_decline_spares_a_live_client_the_batch() -> None:
    server = Server("shop")

    async def first() -> Elicit[Backorder]:
        return Elicit("First?", Backorder)

    async def second() -> Elicit[Backorder]:
        return Elicit("Second?", Backorder)

    @server.tool()
    async def order(a: Annotated[Backorder, Resolve(first)], b: Annotated[Backorder, Resolve(second)]) -> str:
        return f"{a} {b}"

    call = await User(server, {"first": DECLINE}, era=Era.LIVE).call("order")
    assert call.is_error
    assert call.asked == ["First?"]
