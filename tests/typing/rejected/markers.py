"""Uses of the markers that a type checker rejects."""

from typing import Annotated, Literal

from mcp_types import CreateMessageResult
from pydantic import BaseModel

from roundtrip import Elicit, ListRoots, Resolve, Sample


class Seat(BaseModel):
    row: str


class Meal(BaseModel):
    dish: str


def wrong_schema() -> Elicit[Meal]:
    return Elicit("Which row?", Seat)  # error: reportReturnType


def no_schema() -> Elicit[Seat]:
    return Elicit("Which row?")  # error: reportCallIssue


def positional_attempts() -> Elicit[Seat]:
    return Elicit("Which row?", Seat, 5)  # error: reportCallIssue


def wrong_choices() -> Elicit[Literal["back"]]:
    return Elicit("Which row?", Literal["front", "back"])  # error: reportReturnType


def wrong_fallback() -> Elicit[int]:
    return Elicit("How many?", int, fallback="none")  # error: reportReturnType


def choose() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


Elicit("How many?", 7)  # error: reportArgumentType reportCallIssue
Resolve()  # error: reportCallIssue
Resolve("choose")  # error: reportArgumentType
Resolve(choose, "seat")  # error: reportCallIssue
Resolve(choose, remember="yes")  # error: reportArgumentType
Sample("Say something.")  # error: reportCallIssue
Sample(["Say something."], max_tokens=10)  # error: reportArgumentType
ListRoots("all")  # error: reportCallIssue


def consumer(seat: Annotated[Seat, Resolve(choose)], said: Annotated[CreateMessageResult, Resolve(choose)]) -> str:
    return seat.dish + said.text  # error: reportAttributeAccessIssue reportAttributeAccessIssue
