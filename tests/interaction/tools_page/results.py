"""Conversion of return values to results."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import ImageContent, TextContent
from pydantic import BaseModel

from roundtrip import Image, ToolResult
from tests.interaction.tools_page.rows import (
    ABSENT,
    UNSAID,
    Json,
    Make,
    Row,
    encoded,
    resource,
    returning,
    text,
)


class Person(BaseModel):
    name: str
    age: int


ADA: Final = {"name": "Ada", "age": 36}
ADA_TEXT: Final = '{\n  "name": "Ada",\n  "age": 36\n}'
WRAP: Final = "outputSchema.x-fastmcp-wrap-result"
PERSON_SCHEMA: Final[Json] = {
    "type": "object",
    "title": "Person",
    "properties": {"name": {"title": "Name", "type": "string"}, "age": {"title": "Age", "type": "integer"}},
    "required": ["name", "age"],
}


def result(
    says: str, make: Make, gets: Any, structured: Any = None, *, schema: Any = UNSAID, fails: Any = False
) -> Row:
    lists: Json = {}
    if schema is None:
        lists["outputSchema"] = ABSENT
    elif isinstance(schema, Mapping):
        lists |= schema
    return Row(says=says, make=make, lists=lists, sends={}, gets=gets, structured=structured, fails=fails)


def image(data: bytes = b"png", mime_type: str = "image/png", **more: Any) -> Json:
    return {"type": "image", "data": encoded(data), "mimeType": mime_type, **more}


PNG: Final = Image(data=b"png", format="png")
RAW_IMAGE: Final = ImageContent(type="image", data=encoded(b"png"), mime_type="image/png")
PRICE: Final[Json] = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "tags": {"type": "object"}},
    "required": ["price"],
}

RESULTS = [
    # What becomes which content.
    result(
        "a list is a block for each of its items",
        returning([PNG, "a", 1, {"b": 2}, RAW_IMAGE, b"x"]),
        [
            image(),
            text("a"),
            text("1"),
            text('{\n  "b": 2\n}'),
            image(),
            resource(b"x", "file:///resource.bin", "application/octet-stream"),
        ],
    ),
    # Structured content without annotations.
    result("a dict is structured without annotation", returning(ADA), ADA_TEXT, ADA, schema=None),
    # And with them.
    *(
        result(
            f"{value!r} of an annotated {kind} is wrapped and marked",
            returning(value, annotation),
            shown,
            {"result": wrapped},
            schema={"outputSchema.type": "object", "outputSchema.properties.result.type": kind, WRAP: True},
        )
        for value, annotation, kind, shown, wrapped in [
            (8, int, "integer", "8", 8),
            ([1, 2], list[int], "array", [text("1"), text("2")], [1, 2]),
        ]
    ),
    result(
        "a model is structured as it is, and its schema says so",
        returning(Person(name="Ada", age=36), Person),
        ADA_TEXT,
        ADA,
        schema={"outputSchema": PERSON_SCHEMA},
    ),
    # A schema of one's own.
    result(
        "an output schema replaces the annotation's",
        returning({"price": 9.5, "tags": {}}, dict, output_schema=PRICE),
        UNSAID,
        {"price": 9.5, "tags": {}},
        schema={"outputSchema": PRICE},
    ),
    result(
        "a result against its output schema fails the call",
        returning({"tags": {}}, output_schema=PRICE),
        UNSAID,
        UNSAID,
        fails="'price' is a required property",
    ),
    # Whole results.
    Row(
        says="a ToolResult says all of it",
        make=returning(
            ToolResult(
                content=[TextContent(type="text", text="sold")], structured_content={"count": 3}, meta={"took_ms": 145}
            ),
            ToolResult,
        ),
        lists={"outputSchema": ABSENT},
        sends={},
        gets="sold",
        structured={"count": 3},
        result_meta={"took_ms": 145},
    ),
    result(
        "a ToolResult is not wrapped",
        returning(ToolResult(content="3", structured_content={"result": 3}), int),
        "3",
        {"result": 3},
    ),
]
