"""A server that asks in every way, for foreign clients; it also tells a client what it can be asked."""

import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel
from starlette.requests import Request

from roundtrip import Approvals, Approve, Context, Elicit, ElicitUrl, Pages, Resolve, Server
from roundtrip.doctor.client_report import ClientReport
from roundtrip.doctor.client_server import make_server as make_doctor

__all__ = ["BASE", "BOSS", "CANCELLED", "USER", "make_server", "make_server_with_pages"]

BASE: Final = "https://shop.example"
USER: Final = "ann"
BOSS: Final = "bob"
"""The person who approves refunds."""
CANCELLED: Final = "SHOP_CANCELLED"
"""Environment variable with the path of a file, to which each cancelled booking is added."""


class Seat(BaseModel):
    row: Literal["front", "back"]


async def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


def _quiet(report: ClientReport) -> None:
    del report


def make_server() -> Server[Any]:
    server = make_doctor(_quiet)
    _add_tools(server)
    return server


def make_server_with_pages(wait: float = 20.0, *, app: Literal[True, "always"] = True) -> Server[Any]:
    pages = Pages(base_url=BASE, authenticate=_reader, wait=wait, app=app)
    approvals = Approvals(groups={BOSS: ["desk"]})
    server = Server[Any](
        "shop", keys=["7f" * 32], principal=lambda ctx: USER, pages=pages, approvals=approvals, trace=False
    )
    _add_tools(server)

    @server.tool(confirm=Approve("Refund {amount}?", by="desk"))
    async def refund(amount: int) -> str:
        return f"{amount} refunded"

    @server.tool(once_per="{number}")
    async def survey_once(ctx: Context, number: int) -> str:
        return await _survey(ctx, number)

    @server.tool(once_per="{order}")
    async def refund_order(ctx: Context, order: int) -> str:
        amount = await ctx.ask("amount", "How much?", int)
        await ctx.ask("approval", Approve(f"Refund {amount}?", by="desk"))
        return f"{amount} refunded for {order}"

    return server


async def _reader(request: Request) -> str | None:
    return request.cookies.get("user")


def _write_down(booking: int) -> None:
    if path := os.environ.get(CANCELLED):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{booking}\n")


def _add_tools(server: Server[Any]) -> None:
    @server.tool
    async def book(film: str, seat: Annotated[Seat, Resolve(choose_seat)]) -> str:
        return f"{film}, {seat.row}"

    @server.tool(confirm="Cancel {booking}?")
    async def cancel(booking: int) -> str:
        _write_down(booking)
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
    async def survey(ctx: Context, number: int = 11) -> str:
        return await _survey(ctx, number)


async def _survey(ctx: Context, number: int) -> str:
    answers = [await ctx.ask(f"q{place}", f"Question {place}?", int) for place in range(1, number + 1)]
    return f"{sum(answers)} in {number} answers"
