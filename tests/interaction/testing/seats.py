"""Questions of two rounds, of which the second one depends on the first."""

from typing import Annotated

from pydantic import BaseModel

from roundtrip import Elicit, Resolve
from tests.kit.shops import Seat

__all__ = ["Seat", "Snack", "seat", "snack"]


class Snack(BaseModel):
    """Form of the second question."""

    name: str


async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def snack(seat: Annotated[Seat, Resolve(seat)]) -> Elicit[Snack]:
    return Elicit(f"Something to eat in the {seat.row} row?", Snack)
