"""A consumer of the outcome can branch on it, and the checker follows."""

from typing import Annotated, Literal, assert_never, assert_type

from mcp.server.elicitation import AcceptedElicitation as SdkAcceptedElicitation
from mcp.server.elicitation import ElicitationResult as SdkElicitationResult
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


Row = Literal["front", "back"]


def choose_row() -> Elicit[Row]:
    return Elicit("Which row?", Row)


def of_no_model(row: Annotated[ElicitationResult[Row], Resolve(choose_row)]) -> Row:
    if isinstance(row, AcceptedElicitation):
        assert_type(row.data, Row)
        return row.data
    return "front"


def through_the_sdks(seat: ElicitationResult[Seat]) -> SdkElicitationResult[Seat]:
    # What expects the SDK's outcomes takes ours, and can tell them apart by the SDK's classes.
    if isinstance(seat, SdkAcceptedElicitation):
        assert_type(seat.data, Seat)
    return seat


accepted: ElicitationResult[Seat] = AcceptedElicitation(data=Seat(row="back"))
