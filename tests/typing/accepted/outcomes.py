"""A consumer of the outcome can branch on it, and the checker follows."""

from typing import Annotated, assert_never, assert_type

from pydantic import BaseModel

from roundtrip import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    Resolve,
)


class Seat(BaseModel):
    row: str


def choose() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def by_match(seat: Annotated[ElicitationResult[Seat], Resolve(choose)]) -> str:
    match seat:
        case AcceptedElicitation(data=data):
            assert_type(data, Seat)
            return data.row
        case DeclinedElicitation():
            return "declined"
        case CancelledElicitation():
            return "cancelled"
        case _:
            assert_never(seat)


def by_member(seat: Annotated[AcceptedElicitation[Seat] | DeclinedElicitation, Resolve(choose)]) -> str:
    return seat.data.row if isinstance(seat, AcceptedElicitation) else seat.action
