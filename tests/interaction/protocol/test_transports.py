"""The same shop over every transport, in both eras; and a clear error where a transport has no way to ask."""

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Event
from roundtrip.testing import Era, Hop, Steps, User, served
from tests.interaction.protocol.asking import check_asking
from tests.kit.bookshop import bookshop
from tests.kit.players import Person, connect, text_of
from tests.kit.transports import TRANSPORTS, serve_over

pytestmark = pytest.mark.anyio

CASES = [*((transport, Era.RETRY) for transport in TRANSPORTS), ("memory", Era.LIVE), ("http", Era.LIVE)]
"""The live era can ask only where there is a way back."""


@pytest.mark.parametrize(("transport", "era"), CASES)
async def test_calls_that_ask_in_all_ways_complete(transport: str, era: Era) -> None:
    async with serve_over(transport, bookshop()) as target:
        await check_asking(target, era)


@pytest.mark.parametrize(
    ("transport", "settings"),
    [
        ("http stateless", "stateless_http=False, json_response=False (roundtrip serve without --no-sessions)"),
        ("http json", "json_response=False"),
    ],
)
async def test_live_client_without_a_channel_learns_the_remedy(transport: str, settings: str) -> None:
    trace = Steps()
    async with (
        serve_over(transport, bookshop(trace=trace)) as target,
        connect(target, Era.LIVE, Person()) as client,
    ):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("order", {"title": "Neuromancer"})
        # What needs no question is served all the same.
        assert text_of(await client.call_tool("reserve", {"title": "Dune"})) == "Dune: 7 left"
    error = caught.value
    assert error.code == -32600
    assert "'confirm_backorder'" in error.message
    assert f"with {settings}, or use a client that speaks 2026-07-28" in error.message
    assert Event.REJECT in trace.events
    assert Event.ASK not in trace.events


async def test_every_leg_may_come_over_another_transport() -> None:
    async with served(bookshop(), stateless_http=True) as stateless, served(bookshop(), json_response=True) as json:
        answers = {"confirm_backorder": {"confirm": True}, "how_many": {"copies": 2}}
        call = await User([stateless, bookshop(), json], answers, network=Hop()).call("order", title="Neuromancer")
    assert call.text == "2 x Neuromancer, in 2-3 weeks"
