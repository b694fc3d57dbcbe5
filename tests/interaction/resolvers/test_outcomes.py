"""Accept, decline, cancel: a consumer of the bare value runs only for the first; one of the outcome sees all."""

from typing import Annotated

import pytest

from roundtrip import (
    Elicit,
    Event,
    Resolve,
    Server,
    State,
)
from roundtrip.testing import DECLINE, Era, Steps, User
from roundtrip.testing.scripts import UserAction
from tests.kit.bookshop import Backorder, bookshop

pytestmark = pytest.mark.anyio
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
