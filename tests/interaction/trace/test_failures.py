"""Failures of real calls are explained, on both eras."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Recorder, Resolve, Server, ToolError
from roundtrip.testing import DECLINE, User
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.reading.calls import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.kit.time_limits import LIMIT, hang

pytestmark = pytest.mark.anyio


class Seat(BaseModel):
    row: Annotated[int, Field(ge=1)]


async def seat() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def price(seat: Annotated[Seat, Resolve(seat)]) -> int:
    raise LookupError("no price list")


def cinema(transcript: Path) -> Server[Any]:
    server = Server[Any]("cinema", trace=Recorder(transcript, reveal="all"))

    @server.tool()
    async def crash(seat: Annotated[Seat, Resolve(seat)]) -> str:
        raise ValueError(f"row {seat.row} is broken")

    @server.tool()
    async def quote(price: Annotated[int, Resolve(price)]) -> int:
        return price

    @server.tool()
    async def sold_out(seat: Annotated[Seat, Resolve(seat)]) -> str:
        raise ToolError("sold out")

    @server.tool()
    async def book(seat: Annotated[Seat, Resolve(seat)]) -> str:
        return f"row {seat.row}"

    @server.tool(timeout=LIMIT)
    async def dawdle(seat: Annotated[Seat, Resolve(seat)]) -> str:
        await hang()
        return "done"

    @server.tool()
    async def charge(ctx: Context) -> str:
        await ctx.ask("seat", "Which row?", Seat)
        await ctx.step("charge", no_card)
        return "charged"

    @server.tool(confirm="Empty it?")
    async def empty() -> str:
        return "emptied"

    @server.tool()
    async def reserve(ctx: Context) -> str:
        await ctx.ask("seat", "Which row?", Seat)
        return "reserved"

    return server


def no_card() -> str:
    raise PermissionError("no card")


@pytest.mark.usefixtures("limits")
@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize(
    ("tool", "answer", "place", "cause"),
    [
        ("crash", {"row": 3}, "in its body", "ValueError: 'row 3 is broken' was raised"),
        ("quote", {"row": 3}, "in the resolver or dependency 'price'", "LookupError: 'no price list' was raised"),
        ("sold_out", {"row": 3}, "in its body", "(ToolError: 'sold out')"),
        ("dawdle", {"row": 3}, "in its body", "(ToolTimedOut: 'timed out after 5s')"),
        ("charge", {"row": 3}, "in its step 'charge'", "PermissionError: 'no card' was raised"),
        ("book", DECLINE, "", "the user declined or cancelled a question that it needs an answer to"),
        ("book", DECLINE, "", "to go on without the answer, take ElicitationResult[T]"),
        ("reserve", DECLINE, "", "to go on without the answer, use ctx.ask_outcome"),
        ("empty", None, "", "with confirm=, nothing runs unless the user accepts"),
        ("book", [{"row": 0}] * 3, "", "got as many invalid answers as attempts= allows"),
    ],
)
async def test_failed_call_says_where_and_why(tmp_path: Path, tool: str, answer: Any, place: str, cause: str) -> None:
    path = tmp_path / "calls.jsonl"
    answers = {"confirm:empty": DECLINE} if tool == "empty" else {"seat": answer}
    assert (await User(cinema(path), answers, allow_error=True).call(tool)).is_error
    (call,) = join(read_files(files_of([path])).lines).calls.values()
    (failure,) = [one for one in explain(call) if one.subject is ExplainedSubject.FAILURE]
    assert (failure.leg, failure.round) == (call.legs, call.round_count)
    assert place in failure.text
    assert cause in failure.text
    assert failure.text.startswith(f"Leg {call.legs} on ")
