"""Server on stdio whose user is asked on pages of the machine: `python cinema.py`."""

import os
import sys
from typing import Annotated, Any

from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Pages, Resolve, Server
from roundtrip.ledger import SqliteLedger

STEPS: list[str] = []


class Seat(BaseModel):
    row: int = Field(ge=1, le=9, title="Row")
    window: bool = False


def which_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which seat for {film}?", Seat)


def cinema(**options: Any) -> Server[Any]:
    settings: dict[str, Any] = {"local": True, "wait": 20.0, **options.pop("settings", {})}
    server = Server[Any]("cinema", pages=Pages(**settings), **options)

    @server.tool(confirm="Book {film}?")
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat)], ctx: Context) -> str:
        """Book a seat."""
        await ctx.step("reserve", lambda: STEPS.append(film))
        size = await ctx.ask("size", "How many?", int)
        await ctx.review("all", "All right?", ["which_seat"])
        return f"{film}, row {seat.row}, {size}, reserved {len(STEPS)} times"

    @server.tool()
    async def many(number: int, ctx: Context) -> str:
        """Ask many questions."""
        return str(sum([await ctx.ask(f"q{place}", f"Number {place}?", int) for place in range(number)]))

    @server.tool()
    async def guess(ctx: Context) -> str:
        """Ask a question that has a substitute."""
        return str(await ctx.ask("mood", "Which mood?", str, fallback="any"))

    return server


if __name__ == "__main__":
    given: dict[str, Any] = {}
    if "CINEMA_LEDGER" in os.environ:
        given = {"ledger": SqliteLedger(os.environ["CINEMA_LEDGER"]), "keys": ["7f" * 32]}
    settings: dict[str, Any] = {"wait": float(os.environ.get("CINEMA_WAIT", "20"))}
    sys.exit(cinema(settings=settings, **given).run("stdio"))
