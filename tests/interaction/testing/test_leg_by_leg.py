"""Calls taken apart leg by leg, and the transitions that a server reports."""

from typing import Annotated, Any

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    ListRootsRequest,
    TextContent,
)

from roundtrip import Context, Event, Resolve, Server, State
from roundtrip.testing import LegByLeg, LegRequest, Steps
from tests.kit.players import text_of
from tests.kit.shops import KEY, Seat, which_seat

pytestmark = pytest.mark.anyio


def cinema(name: str = "cinema", trace: Steps | None = None) -> Server[Any]:
    server = Server[Any](name, keys=[KEY], audience="cinema", trace=trace)

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat, key="seat")]) -> str:
        return f"{film}, {seat.row}, at {name}"

    @server.tool()
    async def whose(ctx: Context) -> str:
        token = get_access_token()
        return (token.subject if token is not None else None) or "nobody"

    @server.prompt()
    async def letter(seat: Annotated[Seat, Resolve(which_seat, key="seat")]) -> str:
        return f"Dear {seat.row} row"

    return server


@pytest.mark.parametrize("answer", [Seat(row="back"), "back"], ids=["model", "value"])
async def test_each_leg_reaches_the_next_instance_with_user_answers(answer: Any) -> None:
    legs = LegByLeg([cinema("one"), cinema("two")])
    await legs.leg("book", {"film": "Solaris"})
    assert legs.questions["seat"].message == "Which row?"
    result = await legs.leg("book", {"film": "Solaris"}, answers={"seat": answer}, state=legs.token)
    assert text_of(result) == "Solaris, back, at two"
    assert len(legs.rounds) == 1


async def test_a_prompt_is_taken_apart_as_well() -> None:
    legs = LegByLeg(cinema())
    await legs.send(LegRequest("letter", method="prompts/get"))
    answers = {"seat": ElicitResult(action="accept", content={"row": "back"})}
    result = await legs.send(LegRequest("letter", answers=answers, state=legs.token, method="prompts/get"))
    assert isinstance(result, GetPromptResult)
    assert result.messages[0].content == TextContent(type="text", text="Dear back row")
    with pytest.raises(MCPError):
        await legs.send(LegRequest("letter", answers=answers, state=legs.token[:-4], method="prompts/get"))


async def test_leg_may_come_from_an_authenticated_user() -> None:
    assert text_of(await LegByLeg(cinema(), principal="ada").leg("whose")) == "ada"
    assert text_of(await LegByLeg(cinema()).leg("whose")) == "nobody"


async def test_a_round_without_a_state_has_no_token() -> None:
    server = Server("plain")

    @server.tool()
    async def wait() -> InputRequiredResult:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})

    legs = LegByLeg(server)
    await legs.leg("wait")
    with pytest.raises(AssertionError, match="has no request state"):
        _ = legs.token


async def test_steps_keep_what_a_server_went_through() -> None:
    trace = Steps()
    assert trace.states == []
    legs = LegByLeg(cinema(trace=trace))
    await legs.leg("book", {"film": "Solaris"})
    assert trace.events[-1] is Event.ASK
    assert (trace.states[0], trace.states[-1]) == (State.RECEIVED, State.AWAITING_INPUT)
    assert trace.asked == [{"seat": "new"}]
