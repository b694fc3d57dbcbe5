"""Servers with calls for snapshots."""

import re
import secrets
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp_types import Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, Image, ListRoots, Resolve, Sample
from roundtrip.testing import ACCEPT, DECLINE, Answers, Conversation, User
from tests.kit.shops import server_with


class Seat(BaseModel):
    row: Literal["front", "middle", "back"]


class Snacks(BaseModel):
    copies: int = Field(default=1, ge=1, le=10)
    note: str | None = Field(default=None, description="What the kitchen\nshould know", max_length=200)


async def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def choose_snacks(seat: Annotated[Seat, Resolve(choose_seat)]) -> Elicit[Snacks]:
    return Elicit(f"Popcorn?\n\nIt is brought to the {seat.row} row.", Snacks)


async def book(
    film: str,
    seat: Annotated[Seat, Resolve(choose_seat)],
    snacks: Annotated[ElicitationResult[Snacks], Resolve(choose_snacks)],
) -> str:
    popcorn = snacks.data.copies if snacks.action == "accept" else "no"
    return f"Booked {film}, {seat.row} row, {popcorn} popcorn."


async def pay_order(ctx: Context) -> ElicitUrl:
    ticket = ctx.call.ticket("pay_order", unbound=True)
    return ElicitUrl("Pay here", f"http://127.0.0.1:8123/pay?ticket={ticket}")


class Order(BaseModel):
    id: str
    again: str
    key: str
    shipped: str
    day: str
    copies: int
    at: dict[str, datetime]


async def order(paid: Annotated[Any, Resolve(pay_order)], ctx: Context) -> Order:
    number = await ctx.step("number", lambda: str(uuid.uuid4()))
    await ctx.ask("confirm", f"Send order {number} today?", bool)
    now = datetime.now(UTC)
    return Order(
        id=number,
        again=f"order {number}",
        key=secrets.token_urlsafe(24),
        shipped=f"http://localhost:{secrets.randbelow(60000) + 1}/parcels/{secrets.token_hex(16)}",
        day="2026-07-28",
        copies=12,
        at={uuid.uuid4().hex: now},
    )


async def praise(
    model: Annotated[Any, Resolve(lambda: Sample("Praise it", max_tokens=9, system_prompt="Be brief"))],
    roots: Annotated[Any, Resolve(lambda: ListRoots())],
) -> list[Any]:
    return [f"{model.content.text}\nin {len(roots.roots)} place", Image(data=b"1234", format="png")]


async def sdk_seat(film: str) -> SdkElicit[Seat]:
    return SdkElicit(f"Which row for {film}?", Seat)


def of_the_sdk() -> MCPServer[Any]:
    """Make a server of the SDK's own class."""
    server = MCPServer[Any]("cinema")

    @server.tool()
    async def book(film: str, seat: Annotated[Seat, SdkResolve(sdk_seat)]) -> str:
        return f"{film}, {seat.row}"

    return server


def playing(make: Any, answers: Answers, tool: str, **arguments: Any) -> Callable[..., Awaitable[Conversation]]:
    """Return a function that plays a call, with more options of its user."""

    async def play(**options: Any) -> Conversation:
        roots = [Root(uri=FileUrl("file:///music"))]
        return await User(make, answers, roots=roots, **options).call(tool, **arguments)

    return play


BOOKED: Final[Answers] = {
    "choose_seat": {"row": "middle"},
    "choose_snacks": {"copies": 3, "note": "no salt\nplease"},
}
CALLS: Final[dict[str, Callable[..., Awaitable[Conversation]]]] = {
    "booking": playing(lambda: server_with(book), BOOKED, "book", film="Solaris"),
    "declining": playing(lambda: server_with(book), {"choose_seat": DECLINE}, "book", film="Solaris"),
    "ordering": playing(lambda: server_with(order), {"pay_order": ACCEPT, "confirm": True}, "order"),
    "praising": playing(lambda: server_with(praise), {re.compile("Praise it"): "Splendid"}, "praise"),
    "booking_with_the_sdk": playing(of_the_sdk, {re.compile("Which row"): {"row": "back"}}, "book", film="Solaris"),
}
