"""Calls taken apart leg by leg."""

from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    ListRootsRequest,
    TextContent,
)

from roundtrip import Resolve, Server
from roundtrip.testing import LegByLeg, LegRequest
from tests.kit.players import text_of
from tests.kit.shops import KEY, Seat, which_seat

pytestmark = pytest.mark.anyio


def cinema(name: str = "cinema") -> Server[Any]:
    server = Server[Any](name, keys=[KEY], audience="cinema")

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat, key="seat")]) -> str:
        return f"{film}, {seat.row}, at {name}"

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


async def test_a_round_without_a_state_has_no_token() -> None:
    server = Server("plain")

    @server.tool()
    async def wait() -> InputRequiredResult:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})

    legs = LegByLeg(server)
    await legs.leg("wait")
    with pytest.raises(AssertionError, match="has no request state"):
        _ = legs.token
