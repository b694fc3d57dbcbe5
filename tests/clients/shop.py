"""A server that asks in every way, for foreign clients; it also tells a client what it can be asked."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitUrl, Resolve, Server
from roundtrip.doctor.client_report import ClientReport
from roundtrip.doctor.client_server import make_server as make_doctor

__all__ = ["make_server"]


class Seat(BaseModel):
    row: Literal["front", "back"]


async def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


def _quiet(report: ClientReport) -> None:
    del report


def make_server() -> Server[Any]:
    server = make_doctor(_quiet)

    @server.tool
    async def book(film: str, seat: Annotated[Seat, Resolve(choose_seat)]) -> str:
        return f"{film}, {seat.row}"

    @server.tool(confirm="Cancel {booking}?")
    async def cancel(booking: int) -> str:
        return f"{booking} is cancelled"

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.ask("page", ElicitUrl("Pay on this page", "https://example.com/pay"))
        return "paid"

    @server.tool
    async def invite(ctx: Context) -> str:
        adults = await ctx.ask("adults", "How many adults?", int)
        children = await ctx.ask("children", f"And children, with {adults} adults?", int)
        return f"{adults} and {children}"

    @server.tool
    async def order(ctx: Context) -> str:
        cups = await ctx.ask("cups", "How many cups?", int)
        await ctx.review("check", "Is this right?", of=["cups"])
        return f"{cups} cups"

    @server.tool
    async def survey(ctx: Context) -> str:
        answers = [await ctx.ask(f"q{number}", f"Question {number}?", int) for number in range(1, 12)]
        return f"{sum(answers)} in eleven answers"

    return server
