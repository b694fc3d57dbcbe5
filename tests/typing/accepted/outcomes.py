"""A consumer of the outcome can branch on it, and the checker follows."""

from typing import Annotated, assert_never, assert_type

from mcp.server.elicitation import AcceptedElicitation as SdkAcceptedElicitation
from mcp.server.elicitation import ElicitationResult as SdkElicitationResult
from pydantic import BaseModel

from roundtrip import AcceptedElicitation, CancelledElicitation, DeclinedElicitation, Elicit, ElicitationResult, Resolve


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


def through_the_sdks(seat: ElicitationResult[Seat]) -> SdkElicitationResult[Seat]:
    # What expects the SDK's outcomes takes ours, and can tell them apart by the SDK's classes.
    if isinstance(seat, SdkAcceptedElicitation):
        assert_type(seat.data, Seat)
    return seat


accepted: ElicitationResult[Seat] = AcceptedElicitation(data=Seat(row="back"))
