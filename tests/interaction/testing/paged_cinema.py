"""A cinema that asks on question pages and in apps."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Pages, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT
from tests.kit.approving import reader
from tests.kit.shops import KEY

BASE = "https://shop.example"


class Seat(BaseModel):
    row: int = Field(ge=1, le=9)
    side: Literal["left", "right"]
    extras: list[Literal["wine", "nuts"]] = []
    day: date | None = None
    note: str = Field("", max_length=400)


def which_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which seat for {film}?", Seat)


def ann(ctx: object) -> str:
    return "ann"


def make_cinema(**options: Any) -> Server[Any]:
    given: dict[str, Any] = {"keys": [KEY], "principal": ann, "ledger": MemoryLedger(), **options}
    server = Server[Any]("cinema", pages=Pages(base_url=BASE, authenticate=reader, wait=5), **given)

    @server.tool(confirm="Book {film}?")
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat)], ctx: Context) -> dict[str, Any]:
        size = await ctx.ask("size", "How many?", int)
        return {"film": film, "seat": seat.model_dump(mode="json", exclude_defaults=True), "size": size}

    @server.tool
    async def both(ctx: Context) -> str:
        answers = await ctx.ask_all_outcomes({"name": Elicit("Name?", str), "sure": Elicit("Sure?", Seat)})
        return ", ".join(f"{key} {outcome.action}" for key, outcome in answers.items())

    @server.tool
    async def many(number: int, ctx: Context) -> int:
        return sum([await ctx.ask(f"q{place}", f"Number {place}?", int) for place in range(number)])

    return server


SEAT = {"row": 3, "side": "right", "extras": ["nuts"], "day": "2026-07-28", "note": "Near\nthe door"}
SCRIPT = {"confirm:book": ACCEPT, "which_seat": SEAT, "size": 2}
"""The same answers as for forms."""
