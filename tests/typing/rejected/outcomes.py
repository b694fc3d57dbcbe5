"""An outcome is not yet an answer."""

from typing import Annotated

from pydantic import BaseModel

from roundtrip import Elicit, ElicitationResult, Resolve


class Seat(BaseModel):
    row: str


def choose() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def unchecked(seat: Annotated[ElicitationResult[Seat], Resolve(choose)]) -> Seat:
    return seat.data  # error: reportAttributeAccessIssue reportAttributeAccessIssue
