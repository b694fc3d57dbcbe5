"""The same shop over every transport, in both eras; and a clear error where a transport has no way to ask."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Event
from roundtrip.testing import Era, Hop, Steps, User, served
from roundtrip.testing.networks.fleet import Instance
from tests.interaction.protocol.asking import check_asking
from tests.kit.bookshop import bookshop
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio

ASKING = ["memory", "http", "http stateless", "http json", "http stateless json"]
"""Transports on which the retry era can ask."""
WITH_A_WAY_BACK = ASKING[:2]
"""Those on which the live era can."""
HTTP_OPTIONS = {
    "http": {},
    "http stateless": {"stateless_http": True},
    "http json": {"json_response": True},
    "http stateless json": {"stateless_http": True, "json_response": True},
}


@asynccontextmanager
async def serving(transport: str) -> AsyncGenerator[Instance]:
    if transport == "memory":
        yield bookshop()
    else:
        async with served(bookshop(), **HTTP_OPTIONS[transport]) as url:
            yield url


def cases() -> list[tuple[str, Era]]:
    live = [(transport, Era.LIVE) for transport in WITH_A_WAY_BACK]
    return [(transport, Era.RETRY) for transport in ASKING] + live


@pytest.mark.parametrize(("transport", "era"), cases())
async def test_calls_that_ask_in_all_ways_complete(transport: str, era: Era) -> None:
    async with serving(transport) as target:
        await check_asking(target, era)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"stateless_http": True}, "stateless_http=False, json_response=False (roundtrip serve with one worker)"),
        ({"json_response": True}, "json_response=False"),
    ],
    ids=["stateless", "json"],
)
async def test_live_client_without_a_channel_learns_the_remedy(options: dict[str, bool], settings: str) -> None:
    trace = Steps()
    async with (
        served(bookshop(trace=trace), **options) as url,
        connect(url, Era.LIVE, Person()) as client,
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
