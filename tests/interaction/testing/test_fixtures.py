"""The plugin's fixtures: a clock, overrides and a transcript; and calls taken apart leg by leg."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, GetPromptResult, InputRequiredResult, ListRootsRequest, TextContent

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Clock, Era, Hop, LegByLeg, LegRequest, User
from roundtrip.testing.user_defaults import Override, Traces
from roundtrip.trace.explaining.stories import story
from tests.kit.players import text_of
from tests.kit.shops import Seat, server_with, which_seat

pytestmark = pytest.mark.anyio


async def price(film: str) -> int:
    return 12


async def pays(price: Annotated[int, Resolve(price)]) -> Elicit[bool]:
    return Elicit(f"It is {price}. Do you pay?", bool)


async def book(film: str, pays: Annotated[bool, Resolve(pays)]) -> str:
    return f"{film}: {pays}"


def cinema(keys: list[bytes]) -> Server[Any]:
    return server_with(book, keys=keys)


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


async def test_clock_reaches_what_a_ledger_in_memory_keeps(clock: Clock) -> None:
    server, paid = Server[Any]("shop", keys=[b"k" * 32]), list[str]()

    @server.tool(once_per="{order}", scope="service")
    async def pay(order: str) -> None:
        paid.append(order)

    for seconds in (0, 86_000, 86_401):
        clock.advance(seconds)
        await User(server).call("pay", order="A17")
    assert paid == ["A17", "A17"]


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


def numbered(name: str = "cinema") -> Server[Any]:
    server = Server[Any](name, keys=[b"k" * 32], audience="cinema")

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat, name="seat")]) -> str:
        return f"{film}, {seat.row}, at {name}"

    @server.prompt()
    async def letter(seat: Annotated[Seat, Resolve(which_seat, name="seat")]) -> str:
        return f"Dear {seat.row} row"

    return server


@pytest.mark.parametrize("answer", [Seat(row="back"), "back"], ids=["model", "value"])
async def test_each_leg_reaches_the_next_instance_with_user_answers(answer: Any) -> None:
    legs = LegByLeg([numbered("one"), numbered("two")])
    await legs.leg("book", {"film": "Solaris"})
    assert legs.questions["seat"].message == "Which row?"
    result = await legs.leg("book", {"film": "Solaris"}, answers={"seat": answer}, state=legs.token)
    assert text_of(result) == "Solaris, back, at two"
    assert len(legs.rounds) == 1


async def test_a_prompt_is_taken_apart_as_well() -> None:
    legs = LegByLeg(numbered())
    await legs.send(LegRequest("letter", method="prompts/get"))
    answers = {"seat": ElicitResult(action="accept", content={"row": "back"})}
    result = await legs.send(LegRequest("letter", answers=answers, state=legs.token, method="prompts/get"))
    assert isinstance(result, GetPromptResult)
    assert result.messages[0].content == TextContent(type="text", text="Dear back row")
    with pytest.raises(MCPError):
        await legs.send(LegRequest("letter", answers=answers, state=legs.token[:-4], method="prompts/get"))


async def test_a_round_without_a_state_has_no_token() -> None:
    server = Server("plain")

    @server.tool()
    async def wait() -> InputRequiredResult:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})

    legs = LegByLeg(server)
    await legs.leg("wait")
    with pytest.raises(AssertionError, match="has no request state"):
        _ = legs.token
