"""Serve a cinema. Its tool asks for a seat and a snack."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from roundtrip import Elicit, ElicitationResult, Resolve, Server

PRICES = {"front": 8, "middle": 12, "back": 10}


class Seat(BaseModel):
    row: Literal["front", "middle", "back"] = Field(description="Where would you like to sit?")


class Snack(BaseModel):
    name: str = Field(min_length=1, max_length=40)


def price_of(row: str) -> int:
    """Return a seat's current price."""
    return PRICES[row]


async def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def price(seat: Annotated[Seat, Resolve(choose_seat)]) -> int:
    return price_of(seat.row)


async def choose_snack(price: Annotated[int, Resolve(price)]) -> Elicit[Snack]:
    return Elicit(f"The seat is {price} euros. Something to eat with it?", Snack)


async def book(
    film: str,
    seat: Annotated[Seat, Resolve(choose_seat)],
    snack: Annotated[ElicitationResult[Snack], Resolve(choose_snack)],
) -> str:
    """Book a seat in the cinema."""
    eaten = snack.data.name if snack.action == "accept" else "nothing"
    return f"Booked {film}, {seat.row} row, with {eaten} to eat."


def make_server(keys: Sequence[str | bytes]) -> Server[Any]:
    """Create one instance. All instances in a fleet get the same keys."""
    server = Server[Any]("cinema", keys=keys)
    server.add_tool(book)
    return server


if __name__ == "__main__":
    make_server([os.environ["CINEMA_KEY"]]).run()
