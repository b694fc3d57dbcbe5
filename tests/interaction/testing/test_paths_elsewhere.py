"""Paths of servers that report no states, die, lie, or are behind a hostile network."""

from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp_types import InputRequiredResult

from roundtrip import Context, ElicitationResult, Server
from roundtrip.testing import Breach, Era, LegDelivery, LegRequest, PathOutcome, Route, paths, served
from roundtrip.testing.chosen import CHOSEN, UserDefaults
from tests.interaction.testing.cinemas import Seat, cinema

pytestmark = pytest.mark.anyio


def sdk() -> MCPServer[Any]:
    server = MCPServer[Any]("sdk")

    async def row() -> SdkElicit[Seat]:
        return SdkElicit("Which row?", Seat)

    @server.tool()
    async def book(seat: Annotated[ElicitationResult[Seat], SdkResolve(row)]) -> str:
        return {"accept": "booked", "decline": "not booked"}[seat.action]

    return server


async def test_the_sdk_s_own_server_is_explored_without_states() -> None:
    explored = await paths(sdk, "book", depth=1)
    told = [f"{path.choices[0][1]}: {path.outcome}: {path.text}" for path in explored.paths]
    assert told[:3] == [
        "accept: completed: booked",
        "decline: completed: not booked",
        "cancel: crashed: Error executing tool book",
    ]
    assert explored.coverage is None
    assert {path.states for path in explored.paths} == {None}
    assert "states" not in explored.table()
    assert str(explored).endswith("not told by this server; its crashes may look like failures")


async def test_a_server_elsewhere_is_explored_without_states(era: Era) -> None:
    async with served(cinema()) as url:
        explored = await paths(url, "need", {"film": "Solaris"}, era=era, depth=1)
    assert explored.coverage is None
    assert explored.outcomes == {PathOutcome.COMPLETED: {Era.RETRY: 3, Era.LIVE: 2}[era], PathOutcome.FAILED: 2}
    assert explored.paths[0].choices[0][0] == {Era.RETRY: "seat", Era.LIVE: "Which row for Solaris?"}[era]


class Strict:
    """A network that reports a breach for a cancelled seat."""

    name = "strict"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        answer = (leg.answers or {}).get("seat")
        if getattr(answer, "action", "") == "cancel":
            raise Breach("it must not be cancelled")
        return await route.onward(leg)


async def test_a_breach_on_a_hostile_network_is_a_crash() -> None:
    reset = CHOSEN.set(UserDefaults(network=(Strict(),)))
    try:
        explored = await paths(cinema(), "need", {"film": "Solaris"}, depth=1)
    finally:
        CHOSEN.set(reset)
    (breach,) = explored.crashed
    assert (str(breach), breach.outcome) == ("seat cancel", PathOutcome.BREACH)
    with pytest.raises(AssertionError, match="it must not be cancelled"):
        explored.assert_no_crash()


def hostile() -> Server[Any]:
    server = Server[Any]("hostile", keys=[b"k" * 32])

    @server.tool()
    async def lie(ctx: Context) -> str:
        await ctx.ask_outcome("\x1b[2J" + "long" * 20, "\x1b]0;x\x07", bool)
        raise KeyError("\x1b[31m\u202e\n" + "x" * 500)

    return server


async def test_server_text_cannot_take_over_the_terminal() -> None:
    explored = await paths(hostile, "lie")
    assert [line for line in str(explored).splitlines() if not line.isprintable() or len(line) > 120] == []
    with pytest.raises(AssertionError) as raised:
        explored.assert_no_crash()
    assert str(raised.value).replace("\n", "").isprintable()


async def test_endlessly_retrying_server_is_stopped() -> None:
    server = MCPServer[Any]("later")

    @server.tool()
    async def wait() -> str | InputRequiredResult:
        return InputRequiredResult(request_state="later")

    explored = await paths(server, "wait")
    assert explored.paths[0].outcome is PathOutcome.UNFINISHED
    assert "still asks after" in explored.paths[0].text
