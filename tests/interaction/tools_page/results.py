"""Conversion of return values to results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import Annotations, ImageContent, TextContent
from pydantic import BaseModel

from roundtrip import Audio, File, Image, ToolResult
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


@dataclass
class Profile:
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


def audio(data: bytes, mime_type: str, **more: Any) -> Json:
    return {"type": "audio", "data": encoded(data), "mimeType": mime_type, **more}


PNG: Final = Image(data=b"png", format="png")
RAW_IMAGE: Final = ImageContent(type="image", data=encoded(b"png"), mime_type="image/png")
AUDIENCE: Final = Annotations(audience=["user"], priority=0.5)
AUDIENCE_JSON: Final = {"audience": ["user"], "priority": 0.5}
BIN: Final = "file:///resource.bin"
UNKNOWN: Final = "application/octet-stream"
MISFIT: Final = "does not fit the tool's output schema"
PRICE: Final[Json] = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "tags": {"type": "object"}},
    "required": ["price"],
}

RESULTS = [
    # What becomes which content.
    result("a str is text", returning("hi"), "hi", schema=None),
    result(
        "bytes are an embedded resource",
        returning(b"\x00\xff"),
        [resource(b"\x00\xff", BIN, UNKNOWN)],
        schema=None,
    ),
    result("None is an empty result", returning(None), []),
    result("an image is image content", returning(PNG), [image()]),
    result(
        "an audio is audio content",
        returning(Audio(data=b"wav", format="wav"), Audio),
        [audio(b"wav", "audio/wav")],
        schema=None,
    ),
    result(
        "a file is an embedded resource",
        returning(File(data=b"%PDF", format="pdf"), File),
        [resource(b"%PDF", "file:///resource.pdf", "application/pdf")],
        schema=None,
    ),
    result("a content block is itself", returning(RAW_IMAGE), [image()]),
    result(
        "a list is a block for each of its items",
        returning([PNG, "a", 1, {"b": 2}, RAW_IMAGE, b"x"]),
        [
            image(),
            text("a"),
            text("1"),
            text('{\n  "b": 2\n}'),
            image(),
            resource(b"x", BIN, UNKNOWN),
        ],
    ),
    result(
        "a list of images is their blocks",
        returning([PNG] * 2, list[Image]),
        [image(), image()],
        schema=None,
    ),
    result(
        "a mixed list may be annotated",
        returning([PNG, "a"], list[Image | str]),
        [image(), text("a")],
        schema=None,
    ),
    result(
        "a file carries its name and annotations",
        returning(File(data=b"x", format="pdf", name="bill", annotations=AUDIENCE)),
        [{**resource(b"x", "file:///bill.pdf", "application/pdf"), "annotations": AUDIENCE_JSON}],
    ),
    # Inside an object they are the author's to convert.
    result(
        "an image inside a dict is not converted",
        returning({"image": PNG}),
        UNSAID,
        UNSAID,
        fails="to_image_content",
    ),
    result(
        "an image converted by hand may be inside a dict",
        returning({"image": PNG.to_image_content()}),
        UNSAID,
        {"image": image(annotations=None, _meta=None)},
    ),
    # Structured content without annotations.
    result("a dict is structured without annotation", returning(ADA), ADA_TEXT, ADA, schema=None),
    result(
        "a model is structured without annotation", returning(Person(name="Ada", age=36)), ADA_TEXT, ADA, schema=None
    ),
    result("a dataclass is structured without annotation", returning(Profile("Ada", 36)), ADA_TEXT, ADA, schema=None),
    *(
        result(f"{value!r} is not structured without annotation", returning(value), shown, None, schema=None)
        for value, shown in [("a", "a"), (8, "8"), (True, "true"), (2.5, "2.5"), ([1, 2], [text("1"), text("2")])]
    ),
    result("a set is not structured without annotation", returning({1}), UNSAID, None, schema=None),
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
            ("a", str, "string", "a", "a"),
            (8, int, "integer", "8", 8),
            (True, bool, "boolean", "true", True),
            (2.5, float, "number", "2.5", 2.5),
            ([1, 2], list[int], "array", [text("1"), text("2")], [1, 2]),
            ({1}, set[int], "array", UNSAID, [1]),
        ]
    ),
    result(
        "a dict is structured as it is",
        returning(ADA, dict[str, Any]),
        ADA_TEXT,
        ADA,
        schema={"outputSchema.type": "object", WRAP: ABSENT},
    ),
    result(
        "a model is structured as it is, and its schema says so",
        returning(Person(name="Ada", age=36), Person),
        ADA_TEXT,
        ADA,
        schema={"outputSchema": PERSON_SCHEMA},
    ),
    result(
        "a dataclass is structured as it is, and its schema says so",
        returning(Profile("Ada", 36), Profile),
        ADA_TEXT,
        ADA,
        schema={"outputSchema": {**PERSON_SCHEMA, "title": "Profile"}},
    ),
    result(
        "a list of models is wrapped",
        returning([Person(name="Ada", age=36)], list[Person]),
        UNSAID,
        {"result": [ADA]},
        schema={"outputSchema.properties.result.items": PERSON_SCHEMA, WRAP: True},
    ),
    result(
        "a bare list is wrapped",
        returning([1, "a"], list),
        [text("1"), text("a")],
        {"result": [1, "a"]},
        schema={"outputSchema.properties.result.type": "array", WRAP: True},
    ),
    result(
        "a result against its annotation fails the call",
        returning("many", int),
        UNSAID,
        UNSAID,
        fails=MISFIT,
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
    result(
        "a result without structure fails where there is an output schema",
        returning("free", output_schema=PRICE),
        UNSAID,
        UNSAID,
        fails=MISFIT,
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
    result("a ToolResult of text has that text", returning(ToolResult(content="hi")), "hi", None),
    result(
        "a ToolResult of blocks has those",
        returning(ToolResult(content=[TextContent(type="text", text="a"), RAW_IMAGE])),
        [text("a"), image()],
        None,
    ),
    result(
        "a ToolResult of structured content alone shows it as text",
        returning(ToolResult(structured_content={"a": 1})),
        '{\n  "a": 1\n}',
        {"a": 1},
    ),
    result(
        "a ToolResult is not wrapped",
        returning(ToolResult(content="3", structured_content={"result": 3}), int),
        "3",
        {"result": 3},
    ),
    result(
        "a ToolResult is held against an output schema",
        returning(ToolResult(content="3"), output_schema=PRICE),
        UNSAID,
        UNSAID,
        fails=MISFIT,
    ),
    result(
        "a ToolResult may come with an output schema",
        returning(ToolResult(content="9.50", structured_content={"price": 9.5}), output_schema=PRICE),
        "9.50",
        {"price": 9.5},
    ),
]
