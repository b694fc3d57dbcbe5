"""The plugin's fixtures: a clock, overrides and a transcript."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Clock, Era, Hop, LegByLeg, User
from roundtrip.testing.chosen import Override, Traces
from roundtrip.trace.explaining.stories import story
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio


async def price(film: str) -> int:
    return 12


async def pays(price: Annotated[int, Resolve(price)]) -> Elicit[bool]:
    return Elicit(f"It is {price}. Do you pay?", bool)


def cinema(keys: list[bytes]) -> Server[Any]:
    server = Server[Any]("cinema", keys=keys)

    @server.tool()
    async def book(film: str, pays: Annotated[bool, Resolve(pays)]) -> str:
        return f"{film}: {pays}"

    return server


# Made before any test has a clock.
SERVER = cinema([b"k" * 32])


async def test_clock_reaches_servers_made_before_it(clock: Clock) -> None:
    legs = LegByLeg(SERVER)

    async def answered_after(seconds: float) -> str:
        await legs.leg("book", {"film": "Solaris"})
        clock.advance(seconds)
        return text_of(await legs.leg("book", {"film": "Solaris"}, answers={"pays": True}, state=legs.token))

    assert await answered_after(599) == "Solaris: True"
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await answered_after(601)


def test_the_clock_is_put_back() -> None:
    with Clock().set() as clock:
        clock.advance(-86400)
        assert datetime.fromtimestamp(time.time(), UTC) < datetime.now(UTC)
    assert abs(datetime.fromtimestamp(time.time(), UTC) - datetime.now(UTC)).total_seconds() < 60


async def test_override_applies_on_both_eras(overrides: Override, roundtrip_era: Era) -> None:
    overrides(SERVER, {price: lambda: 8})
    call = await User(SERVER, {"pays": True}).call("book", film="Solaris")
    assert call.questions[0].message == "It is 8. Do you pay?"


async def test_override_is_restored_after_the_test() -> None:
    call = await User(SERVER, {"pays": True}).call("book", film="Solaris")
    assert call.questions[0].message == "It is 12. Do you pay?"


async def test_the_trace_has_the_calls_of_all_instances(trace: Traces) -> None:
    await User(cinema, {"pays": True}, network=Hop()).call("book", film="Solaris")
    assert trace.call.tool == "book"
    assert (trace.call.round_count, trace.call.legs) == (1, 2)
    await User(cinema, {"pays": False}).call("book", film="Stalker")
    assert [story(call)["arguments"] for call in trace.calls] == [
        {"value": {"film": "Solaris"}},
        {"value": {"film": "Stalker"}},
    ]
    with pytest.raises(AssertionError, match="2 calls were recorded: book, book"):
        _ = trace.call
