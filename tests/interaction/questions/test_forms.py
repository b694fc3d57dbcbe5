"""Forms as the client gets them: flat, with the primitives and choices that the protocol knows."""

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams
from pydantic import BaseModel, Field, WithJsonSchema

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Era, User
from tests.kit.players import Reply

pytestmark = pytest.mark.anyio


async def ask_for(schema: type[Any], era: Era, reply: Reply) -> tuple[ElicitRequestFormParams, Any]:
    """Return the form that a client gets for a schema, and the answer that the tool's body received."""
    server = Server("shop")
    got: list[Any] = []

    async def question() -> Any:
        return Elicit("?", schema)

    @server.tool()
    async def order(answer: Annotated[Any, Resolve(question)]) -> str:
        got.append(answer)
        return "done"

    call = await User(server, {"question": reply}, era=era).call("order")
    assert call.text == "done"
    (asked,) = call.questions
    assert isinstance(asked.params, ElicitRequestFormParams)
    return asked.params, got[0]


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Primitives(BaseModel):
    name: str = Field(min_length=1, max_length=9)
    day: date
    count: int = Field(ge=1, le=9)
    share: float = Field(ge=0, le=1)
    sure: bool


async def test_strings_numbers_and_booleans_carry_their_bounds(era: Era) -> None:
    """Shows F1."""
    reply = {"name": "Ada", "day": "2026-08-01", "count": 2, "share": 0.5, "sure": True}
    form, got = await ask_for(Primitives, era, reply)
    assert got == Primitives(name="Ada", day=date(2026, 8, 1), count=2, share=0.5, sure=True)
    assert form.requested_schema["type"] == "object"
    assert form.requested_schema["properties"] == {
        "name": {"type": "string", "title": "Name", "minLength": 1, "maxLength": 9},
        "day": {"type": "string", "title": "Day", "format": "date"},
        "count": {"type": "integer", "title": "Count", "minimum": 1, "maximum": 9},
        "share": {"type": "number", "title": "Share", "minimum": 0, "maximum": 1},
        "sure": {"type": "boolean", "title": "Sure"},
    }
    assert form.requested_schema["required"] == ["name", "day", "count", "share", "sure"]


class Choices(BaseModel):
    plain: Literal["a", "b"]
    size: Size
    titled: Annotated[
        str,
        WithJsonSchema({"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}),
    ]
    many: list[Literal["x", "y"]] = Field(min_length=1, max_length=2)
    sizes: list[Size]
    many_titled: Annotated[
        list[str],
        WithJsonSchema({"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}]}}),
    ]


async def test_choices_single_and_multiple_with_and_without_titles(era: Era) -> None:
    """Shows F2."""
    reply = {"plain": "a", "size": "l", "titled": "g", "many": ["x"], "sizes": ["s", "l"], "many_titled": ["r"]}
    form, got = await ask_for(Choices, era, reply)
    assert got.size is Size.LARGE
    assert got.sizes == [Size.SMALL, Size.LARGE]
    shapes = {
        field: {key: value for key, value in shape.items() if key not in ("title", "description")}
        for field, shape in form.requested_schema["properties"].items()
    }
    assert shapes == {
        "plain": {"type": "string", "enum": ["a", "b"]},
        "size": {"type": "string", "enum": ["s", "l"]},
        "titled": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "minItems": 1, "maxItems": 2},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
        "many_titled": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}]}},
    }
