"""Forms as the client gets them: flat, with the primitives, choices and defaults that the protocol knows."""

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams
from pydantic import BaseModel, Field, WithJsonSchema

from roundtrip import Elicit, InvalidSignature, Resolve, Server
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


class Defaults(BaseModel):
    name: str = "Ada"
    count: int = 2
    share: float = 0.5
    sure: bool = False
    size: Size = Size.SMALL
    tags: list[Literal["x", "y"]] = ["x"]
    day: date = date(2026, 7, 28)
    larger: Size | None = Size.LARGE
    note: str | None = None


async def test_every_primitive_may_have_a_default(era: Era) -> None:
    """Shows F3 and F4."""
    form, got = await ask_for(Defaults, era, {})
    assert got == Defaults()
    properties: dict[str, Any] = form.requested_schema["properties"]
    defaults = {field: shape["default"] for field, shape in properties.items() if "default" in shape}
    assert defaults == {
        "name": "Ada",
        "count": 2,
        "share": 0.5,
        "sure": False,
        "size": "s",
        "tags": ["x"],
        "day": "2026-07-28",
        "larger": "l",
    }
    assert properties["note"] == {"type": "string", "title": "Note"}
    assert "required" not in form.requested_schema


class Inner(BaseModel):
    x: int


class Nested(BaseModel):
    inner: Inner


def test_unrenderable_form_is_rejected_at_registration_by_field() -> None:
    """Shows F4."""

    async def question() -> Elicit[Nested]:
        return Elicit("?", Nested)

    async def order(answer: Annotated[Any, Resolve(question)]) -> str:
        return "never"

    with pytest.raises(InvalidSignature, match="'inner'"):
        Server("shop").add_tool(order)


async def test_late_unrenderable_form_is_rejected_before_sending(era: Era) -> None:
    """Shows F4."""
    server = Server("shop")

    async def question() -> Any:
        return Elicit("?", Nested)

    @server.tool()
    async def order(answer: Annotated[Any, Resolve(question)]) -> str:
        return "never"

    call = await User(server, era=era).call("order")
    assert call.is_error
    assert call.questions == []
