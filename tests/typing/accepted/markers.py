"""Types that an editor infers of the markers."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, assert_type

from mcp.server.mcpserver.resolve import Elicit as SdkElicit
from mcp.server.mcpserver.resolve import ListRoots as SdkListRoots
from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from mcp.server.mcpserver.resolve import Sample as SdkSample
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from roundtrip import Elicit, ListRoots, Resolve, Sample


class Seat(BaseModel):
    row: str


@dataclass
class Meal:
    dish: str


class Drink(TypedDict):
    name: str


assert_type(Elicit("Which row?", Seat), Elicit[Seat])
assert_type(Elicit("Which dish?", Meal), Elicit[Meal])
assert_type(Elicit("Which drink?", Drink), Elicit[Drink])

Row = Literal["front", "back"]

assert_type(Elicit("Which row?", Row), Elicit[Row])
assert_type(Elicit("Which row?", Row, fallback=None), Elicit[Row | None])
assert_type(Elicit("How many?", Annotated[int, Field(ge=1)]), Elicit[int])
assert_type(Elicit[Row]("Which row?", Row), Elicit[Row])


async def default_row() -> Row:
    return "front"


assert_type(Elicit("Which row?", Row, fallback=default_row), Elicit[Row])


def seat_or_none() -> Elicit[Seat | None]:
    return Elicit("Which row?", Seat, fallback=None)


def either(known: Seat | None) -> Seat | Elicit[Seat]:
    return known or Elicit("Which row?", Seat)


def unsubscripted() -> Elicit:
    return Elicit("Which row?", Seat)


class Chooser:
    def __init__(self, row: str) -> None:
        self.row = row

    def __call__(self) -> str:
        return self.row


resolvers = [
    Resolve(either),
    Resolve(Chooser),
    Resolve(Chooser("back")),
    Resolve(partial(Chooser, "back")),
    Resolve(lambda: 1, name="one"),
    Resolve(either, name="seat", former_names=("row",), remember=True),
]
assert_type(resolvers, list[Resolve])


def consumer(seat: Annotated[Seat, Resolve(either)]) -> str:
    # The marker leaves the parameter's type alone.
    assert_type(seat, Seat)
    return seat.row


# Ours go wherever the SDK's are expected.
sdk_elicit: SdkElicit[Seat] = Elicit("Which row?", Seat)
sdk_resolve: SdkResolve = Resolve(either)
sdk_roots: SdkListRoots = ListRoots()
sdk_sample: SdkSample = Sample("Say something.", max_tokens=10)
messages = [SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))]
more: SdkSample = Sample(messages, max_tokens=10, system_prompt="Be brief.", temperature=0.5)
