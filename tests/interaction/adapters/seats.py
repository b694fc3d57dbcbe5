"""The question that tools of other classes of servers ask."""

from pydantic import BaseModel

from roundtrip import Elicit

__all__ = ["Seats", "ask_seats"]


class Seats(BaseModel):
    seats: int


async def ask_seats(film: str) -> Elicit[Seats]:
    return Elicit(f"How many seats for {film}?", Seats)
