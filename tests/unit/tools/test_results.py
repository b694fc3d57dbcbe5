"""Results of tools: content, structured content, schemas, and values that are rejected."""

import base64
import inspect
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypedDict, cast

import pytest
from jsonschema import Draft202012Validator
from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    InputRequiredResult,
    TextContent,
)
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer, model_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType

from roundtrip.errors import InvalidSignature, NotSendable
from roundtrip.tools.content import ToolResult
from roundtrip.tools.media import Audio, File, Image
from roundtrip.tools.results import Results, results_for, returned_type
from tests.kit.raised import raised
from tests.kit.tables import check_each

EMPTY = inspect.Signature.empty
NOT_TEXT = b"\x89PNG\xff\x00"
MARKER = "x-fastmcp-wrap-result"


class Color(Enum):
    RED = "red"


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Person:
    name: str
    tags: list[str] = field(default_factory=list[str])


@pydantic_dataclass
class Strict:
    age: int


class Measured(BaseModel):
    x: float


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: int


class Opened(Closed):
    y: int = 2


class Derived(Measured):
    y: float


class Shouted(BaseModel):
    x: int

    @field_serializer("x")
    def shout(self, x: int):
        return f"{x}!"


class Spelled(BaseModel):
    x: int

    @model_serializer
    def spell(self):
        return str(self.x)


class User(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: int = Field(alias="userId")
    name: str = "Ada"

    @computed_field
    @property
    def shown(self) -> str:
        return f"{self.name} #{self.user_id}"


class Event(BaseModel):
    at: datetime = Field(validation_alias="when", serialization_alias="stamp")

    @field_serializer("at")
    def as_seconds(self, value: datetime) -> int:
        return int(value.timestamp())


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Row(TypedDict):
    a: int


class Numbers(RootModel[list[int]]):
    pass


class Table(RootModel[dict[str, int]]):
    pass


class Named(dict[str, int]):
    pass


class Unknown:
    def __str__(self) -> str:
        return "an unknown object"


PLANTED = b"sent once and no more"
Users = TypeAliasType("Users", list[User])
OneUser = TypeAliasType("OneUser", User)
Pictures = TypeAliasType("Pictures", list[Image])
MISFIT = "does not match the tool's output schema"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ADA = User(userId=1)
ADA_DATA = {"userId": 1, "name": "Ada", "shown": "Ada #1"}


def made(
    returns: Any = EMPTY, *, output_schema: dict[str, Any] | None = None, structured: bool | None = None
) -> Results:
    """Return the results of a tool whose function has this return annotation."""

    def tool() -> None: ...

    tool.__signature__ = inspect.Signature(return_annotation=returned_type(returns))  # pyright: ignore[reportFunctionMemberAccess]
    return results_for(func_metadata(tool), returns, tool="tool", output_schema=output_schema, structured=structured)


def sent(results: Results, value: Any) -> CallToolResult:
    result = results.convert(value)
    assert isinstance(result, CallToolResult)
    return result


def fitting(results: Results, value: Any) -> dict[str, Any] | None:
    """Return the structured content of a value, which clients hold against the listed schema."""
    structured = sent(results, value).structured_content
    Draft202012Validator(results.output_schema or {}).validate(structured)  # pyright: ignore[reportUnknownMemberType] - partly typed
    return structured


def complaint(results: Results, value: Any) -> str:
    """Return why a value cannot be sent; an empty text if it can."""
    error = raised(results.convert, value)
    return str(error) if isinstance(error, NotSendable) else ""


def refusal(**given: Any) -> str:
    """Return why a tool with this annotation or these options is rejected."""
    error = raised(made, **given)
    return str(error) if isinstance(error, InvalidSignature) else ""


def texts(result: CallToolResult) -> list[str]:
    return [block.text if isinstance(block, TextContent) else block.type for block in result.content]


def numbers() -> Generator[int]:
    yield from range(3)


# Content.


# A value, its content, and its structured content.
WITHOUT_ANNOTATION: list[tuple[Any, list[str], Any]] = [
    (None, [], None),
    ("text", ["text"], None),
    ("é\U0001f600\x00", ["é\U0001f600\x00"], None),
    (5, ["5"], None),
    (True, ["true"], None),
    (float("nan"), ["NaN"], None),
    (["a", 1, ["b", None]], ["a", "1", "b"], None),
    (("a", {"b": 1}), ["a", '{\n  "b": 1\n}'], None),
    ({}, ["{}"], {}),
    ({1: None, (2, 3): Color.RED}, ['{\n  "1": null,\n  "2,3": "red"\n}'], {"1": None, "2,3": "red"}),
    ({"a": Unknown()}, ['{\n  "a": "an unknown object"\n}'], {"a": "an unknown object"}),
    ({3}, ["[\n  3\n]"], None),
    (Place(1, 2), ["1", "2"], None),
    (Named(a=1), ['{\n  "a": 1\n}'], {"a": 1}),
    (MappingProxyType({"a": 1}), ['{\n  "a": 1\n}'], {"a": 1}),
    (NOON, ['"2026-01-01T12:00:00Z"'], None),
    (Unknown(), ['"an unknown object"'], None),
    (ADA, ['{\n  "userId": 1,\n  "name": "Ada",\n  "shown": "Ada #1"\n}'], ADA_DATA),
    ([Person("Ada", ["x"])], ['{\n  "name": "Ada",\n  "tags": [\n    "x"\n  ]\n}'], None),
    (Person("Ada"), ['{\n  "name": "Ada",\n  "tags": []\n}'], {"name": "Ada", "tags": []}),
    (Strict(age=3), ['{\n  "age": 3\n}'], {"age": 3}),
    (Table({"a": 1}), ['{\n  "a": 1\n}'], {"a": 1}),
    (Numbers([1]), ["[\n  1\n]"], None),
    ([Image(data=b"i"), "and", Audio(data=b"a"), File(data=b"f")], ["image", "and", "audio", "resource"], None),
    ([SdkImage(data=b"i"), SdkAudio(data=b"a")], ["image", "audio"], None),
    (TextContent(type="text", text="as it is"), ["as it is"], None),
    (Image(data=b""), ["image"], None),
    (NOT_TEXT, ["resource"], None),
]


def test_value_without_an_annotation_is_content_and_objects_are_structured() -> None:
    def check(annotation: Any, row: tuple[Any, list[str], Any]) -> None:
        value, content, structured = row
        results = made(annotation)
        assert results.output_schema is None
        result = sent(results, value)
        assert (texts(result), result.structured_content) == (content, structured)
        assert ("structured_content" in result.model_fields_set) == (structured is not None)

    check_each(product([EMPTY, Any, object, None, type(None)], WITHOUT_ANNOTATION), check)


def test_bytes_become_an_embedded_resource() -> None:
    def check(value: Any) -> None:
        for result in (sent(made(), value), sent(made(bytes), value), sent(made(list), [value])):
            (block,) = result.content
            assert isinstance(block, EmbeddedResource)
            assert block.resource == BlobResourceContents(
                uri="file:///resource.bin", blob="iVBOR/8A", mime_type="application/octet-stream"
            )

    check_each([NOT_TEXT, bytearray(NOT_TEXT), memoryview(NOT_TEXT)], check)


def test_a_generator_is_read_once_for_content_and_structured_content() -> None:
    assert texts(sent(made(), numbers())) == ["[\n  0,\n  1,\n  2\n]"]
    for annotation in (Iterator[int], Generator[int, None, None], Iterator, list[int], list):
        result = sent(made(annotation), numbers())
        assert texts(result) == ["[\n  0,\n  1,\n  2\n]"]
        assert result.structured_content == {"result": [0, 1, 2]}


def test_image_inside_a_dict_is_rejected_unless_it_is_a_block() -> None:
    def check(annotation: Any, image: Any) -> None:
        advice = complaint(made(annotation), {"image": image})
        assert re.search(r"Image cannot be used inside .*to_image_content\(\)", advice)

    check_each(product([EMPTY, dict, dict[str, Any]], [Image(data=b""), SdkImage(data=b"")]), check)
    structured = sent(made(dict), {"image": Image(data=b"x").to_image_content()}).structured_content
    assert structured is not None
    assert structured["image"]["data"] == "eA=="


async def later() -> AsyncIterator[int]:
    yield 1


def test_value_without_json_form_is_rejected() -> None:
    def check(value: Any, words: str) -> None:
        assert words in complaint(made(), value)

    reasons = [
        ({"a": NOT_TEXT}, "bytes that are not UTF-8 text"),
        (Person(name="Ada", tags=[NOT_TEXT]), "bytes that are not UTF-8 text"),  # pyright: ignore[reportArgumentType]
        (later(), "must be awaited"),
        ([{"a": ToolResult(content="x")}], "must be returned by itself"),
        (ToolResult(content="x", meta={"a": object()}), "no JSON form: Unable to serialize unknown type"),
        # A repr is not a result.
        (Person, "cannot be converted"),
        (len, "cannot be converted"),
        ({"a": 1}.keys(), "cannot be converted"),
    ]
    check_each(reasons, check)


def test_a_structure_that_holds_itself_is_rejected() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    for annotation in (EMPTY, dict, dict[str, dict[str, Any]]):
        with pytest.raises(NotSendable):
            made(annotation).convert(circle)


# Structured content that is switched off or demanded.


def test_structured_content_can_be_switched_off() -> None:
    def check(annotation: Any) -> None:
        results = made(annotation, structured=False)
        assert results.output_schema is None
        assert sent(results, {"a": 1}).structured_content is None
        assert sent(results, ADA).structured_content is None

    check_each([int, dict, User, str], check)


def test_structured_content_that_is_demanded_needs_a_schema() -> None:
    needs = "structured_output=True needs; annotate a model"
    annotations = [EMPTY, Any, None, Image, bytes, Unknown, list[Image]]
    assert [one for one in annotations if needs not in refusal(returns=one, structured=True)] == []
    for annotation in (User, int, dict, Color):
        assert made(annotation, structured=True).output_schema == made(annotation).output_schema


# Annotations and their schemas.


WITHOUT_SCHEMA: list[Any] = [
    bytes,
    SdkImage,
    SdkAudio,
    File,
    ToolResult,
    TextContent,
    list[Image | str],
    tuple[str, File],
    Iterator[Image],
    str | bytes,
    dict[str, Any] | ToolResult,
    Annotated[Image, "a chart"],
    Image | InputRequiredResult,
    Pictures,
    CallToolResult,
    InputRequiredResult,
    AsyncIterator[int],
    Callable[[], int],
    Unknown,
    Named,
    Any | None,
    list[Unknown],
    Unknown | None,
    "NotDefinedAnywhere",
]


def test_content_annotation_or_unknown_type_gives_no_schema() -> None:
    assert [annotation for annotation in WITHOUT_SCHEMA if made(annotation).output_schema is not None] == []


RESULT_OF: list[tuple[Any, dict[str, Any], Any, Any]] = [
    (str, {"type": "string"}, "x", "x"),
    (int, {"type": "integer"}, 5, 5),
    (bool, {"type": "boolean"}, True, True),
    (float, {"type": "number"}, 2, 2.0),
    (list, {"type": "array", "items": {}}, [1, "b", None], [1, "b", None]),
    (tuple, {"type": "array", "items": {}}, (1, "b"), [1, "b"]),
    (set, {"type": "array", "items": {}}, {3}, [3]),
    (Sequence, {"type": "array", "items": {}}, (1,), [1]),
    (list[Any], {"type": "array", "items": {}}, [Unknown()], ["an unknown object"]),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, {3}, [3]),
    (Users, {"type": "array"}, [ADA], [ADA_DATA]),
    (User | None, {}, None, None),
    (User | None, {}, ADA, ADA_DATA),
    (User | Node, {}, Node(name="x"), {"name": "x", "children": []}),
    (Color, {"type": "string", "enum": ["red"]}, Color.RED, "red"),
    (datetime, {"type": "string", "format": "date-time"}, NOON, "2026-01-01T12:00:00Z"),
    (Place, {"type": "array", "maxItems": 2}, Place(1, 2), [1, 2]),
    (Numbers, {"type": "array"}, Numbers([1]), [1]),
    (dict[int, str], {"type": "object"}, {1: "a"}, {"1": "a"}),
    (Annotated[int, Field(ge=0)], {"type": "integer", "minimum": 0}, 5, 5),
    (int | InputRequiredResult, {"type": "integer"}, 5, 5),
    (Awaitable[int], {"type": "integer"}, 5, 5),
]

OBJECTS: list[tuple[Any, Any, Any]] = [
    (dict, {"a": Unknown(), 2: NOON}, {"a": "an unknown object", "2": "2026-01-01T12:00:00Z"}),
    (dict, ADA, ADA_DATA),
    (Mapping, MappingProxyType({"a": 1}), {"a": 1}),
    (Mapping[str, int], Named(a=1), {"a": 1}),
    (dict[str, Any] | InputRequiredResult, {"a": 1}, {"a": 1}),
    (User, ADA, ADA_DATA),
    (User, {"user_id": 1}, ADA_DATA),
    (User, {"userId": 1}, ADA_DATA),
    # A subclass keeps its own fields.
    (Measured, Derived(x=1, y=2), {"x": 1, "y": 2}),
    (Node, Node(name="x", children=[Node(name="y")]), {"name": "x", "children": [{"name": "y", "children": []}]}),
    (Event, Event.model_validate({"when": NOON}), {"stamp": 1767268800}),
    (Table, Table({"a": 1}), {"a": 1}),
    (Person, Person("Ada"), {"name": "Ada", "tags": []}),
    (Strict, Strict(age=3), {"age": 3}),
    (Row, {"a": 1}, {"a": 1}),
    (Annotated[User, "a user"], ADA, ADA_DATA),
    (OneUser, ADA, ADA_DATA),
]


def test_non_object_result_is_wrapped_and_marked() -> None:
    def check(annotation: Any, part: dict[str, Any], value: Any, expected: Any) -> None:
        results = made(annotation)
        schema = results.output_schema
        assert schema is not None
        assert (schema["type"], schema["required"], schema[MARKER]) == ("object", ["result"], True)
        assert list(schema["properties"]) == ["result"]
        shown = schema["properties"]["result"]
        if "$ref" in shown:
            shown = schema["$defs"][shown["$ref"].removeprefix("#/$defs/")]
        assert {key: shown.get(key) for key in part} == part
        assert fitting(results, value) == {"result": expected}

    check_each(RESULT_OF, check)


def test_object_result_is_not_wrapped() -> None:
    def check(annotation: Any, value: Any, expected: Any) -> None:
        results = made(annotation)
        assert results.output_schema is not None
        assert results.output_schema["type"] == "object"
        assert MARKER not in results.output_schema
        assert fitting(results, value) == expected

    check_each(OBJECTS, check)
    assert made(dict).output_schema == {"type": "object", "additionalProperties": True}


def test_a_bare_list_may_mix_images_with_text() -> None:
    result = sent(made(list), [Image(data=b"x"), "text", [SdkAudio(data=b"y")]])
    assert texts(result) == ["image", "text", "audio"]
    assert fitting(made(list), [Image(data=NOT_TEXT), "beside it", NOT_TEXT]) is not None
    image = {"type": "image", "mimeType": "image/png"}
    audio = {"type": "audio", "mimeType": "audio/wav"}
    assert result.structured_content == {"result": [image, "text", [audio]]}


def test_bytes_in_a_bare_list_are_sent_once() -> None:
    def check(value: Any) -> None:
        text = sent(made(list), [value]).model_dump_json(by_alias=True)
        assert text.count(base64.b64encode(PLANTED).decode()) == 1

    helpers = [kind(data=PLANTED) for kind in (Image, Audio, File)]
    check_each([*helpers, PLANTED, Image(data=PLANTED).to_image_content()], check)


class Opaque:
    def __init__(self) -> None:
        self.value = "secret"

    def __repr__(self) -> str:
        return f"Opaque({self.value})"


def test_value_without_json_form_is_rejected_by_type() -> None:
    def check(annotation: Any, value: Any) -> None:
        words = complaint(made(annotation), value)
        assert re.search("Opaque cannot be converted|does not match", words)
        assert "secret" not in words

    check_each(product([EMPTY, Any, dict, list, Opaque], [Opaque(), [Opaque()], {"a": [Opaque()]}]), check)


MISFITS: list[tuple[Any, Any]] = [
    (int, "five"),
    (str, 5),
    (str, Image(data=b"")),
    (Annotated[int, Field(ge=0)], -1),
    (dict, None),
    (dict, "text"),
    (list, "text"),
    (list[int], ["x"]),
    (User, {"name": "Ada"}),
    (Row, {"a": "x"}),
    (Color, "green"),
    (dict[str, int], {"a": "x"}),
    # Models that are serialized against their schemas.
    (Closed, Opened(x=1)),
    (Shouted, Shouted(x=1)),
    (list[Shouted], [Shouted(x=1)]),
    (Spelled, Spelled(x=1)),
]


def test_a_value_against_its_annotation_fails_the_call() -> None:
    assert [row for row in MISFITS if MISFIT not in complaint(made(row[0]), row[1])] == []


UNSENDABLE: dict[str, Any] = {
    "JSON cannot represent nan": float("nan"),
    "JSON cannot represent inf": float("inf"),
    "not valid Unicode": "\ud800",
    "more than 4300 digits": 10**4300,
}


def test_unsendable_value_is_rejected_at_any_depth() -> None:
    def check(words: str) -> None:
        value = UNSENDABLE[words]
        kind: Any = type(cast("object", value))
        cases: list[tuple[Any, Any]] = [
            (kind, value),
            (list[kind], [value]),
            (dict[str, kind], {"a": value}),
            (dict, {"a": [value]}),
            (list, [value]),
            (EMPTY, {"a": value}),
            (EMPTY, ToolResult(content="x", meta={"a": value})),
            (EMPTY, CallToolResult(content=[], structured_content={"a": value})),
        ]
        if kind is float:
            cases += [(Measured, Measured(x=value)), (Measured, {"x": str(value)})]
        else:
            cases.append((EMPTY, CallToolResult(content=[TextContent(type="text", text="", _meta={"a": value})])))
        if kind is str:
            cases.append((EMPTY, InputRequiredResult(request_state=value)))
        # A number of so many digits has no repr.
        places = [place for place, (one, returned) in enumerate(cases) if words not in complaint(made(one), returned)]
        assert places == []

    check_each(UNSENDABLE, check)


def test_misfitting_result_is_described_without_its_value() -> None:
    secret = "s3cret"
    for schema in (None, {"type": "object", "properties": {"a": {"type": "integer"}}}):
        with pytest.raises(NotSendable) as caught:
            made(dict[str, int], output_schema=schema).convert({"a": secret})
        assert "integer" in str(caught.value)
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# Whole results.


def test_request_for_input_and_error_pass_through() -> None:
    for whole in (InputRequiredResult(request_state="s"), CallToolResult(content=[], is_error=True)):
        annotations = [EMPTY, str, User, dict, list, ToolResult]
        assert [one for one in annotations if made(one).convert(whole) is not whole] == []


def test_whole_result_is_checked_against_the_schema() -> None:
    fitting = CallToolResult(content=[], structured_content={"result": "x"})
    assert made(str).convert(fitting) is fitting
    assert made().convert(CallToolResult(content=[])) == CallToolResult(content=[])
    typed = made(Annotated[CallToolResult, Row])
    assert sent(typed, CallToolResult(content=[], structured_content={"a": 1})).structured_content == {"a": 1}
    misfits = [(made(str), None), (made(str), {"result": 5}), (typed, {"a": "x"}), (made(dict), [1])]
    wrong: list[Any] = [(one, CallToolResult(content=[], structured_content=data)) for one, data in misfits]
    for results in (made(str), made(Node), made(output_schema={"type": "object", "required": ["a"]})):
        wrong += [(results, ToolResult(content="x")), (results, ToolResult(structured_content={"b": 1}))]
    assert [one for one in wrong if MISFIT not in complaint(*one)] == []


def test_a_whole_result_is_sent_as_it_is() -> None:
    whole = ToolResult(content="3 users", structured_content={"result": "x"}, meta={"ms": 3})
    for results in (made(), made(ToolResult), made(str), made(dict), made(str, structured=False)):
        result = sent(results, whole)
        assert (texts(result), result.structured_content, result.meta) == (["3 users"], {"result": "x"}, {"ms": 3})


# Schemas given by hand.

POINT: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_a_given_schema_replaces_the_annotation_s() -> None:
    def check(annotation: Any, value: Any) -> None:
        results = made(annotation, output_schema=POINT)
        assert results.output_schema == POINT
        structured = sent(results, value).structured_content
        assert structured is not None
        assert structured["name"] == "Ada"

    values = [{"name": "Ada"}, Person("Ada"), Node(name="Ada"), {"name": "Ada", 5: NOON}]
    check_each(product([EMPTY, dict, int, Person, None], values), check)
    wrong = [{}, {"name": 5}, {"name": None}, "Ada", ["Ada"], None, 5, Image(data=b"")]
    assert [value for value in wrong if MISFIT not in complaint(made(output_schema=POINT), value)] == []


def test_a_given_schema_with_the_marker_wraps() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"], MARKER: True}
    results = made(output_schema=schema)
    assert sent(results, 8).structured_content == {"result": 8}
    with pytest.raises(NotSendable, match="result"):
        results.convert("eight")


def test_a_given_schema_has_to_be_a_valid_one_of_an_object() -> None:
    def check(schema: dict[str, Any], words: str) -> None:
        assert words in refusal(output_schema=schema)

    no_object = "tool 'tool': an output schema must describe an object"
    invalid = "output_schema is not a valid JSON schema"
    schemas: list[tuple[dict[str, Any], str]] = [
        ({"type": ["object", "null"]}, no_object),
        ({"properties": {}}, no_object),
        ({"type": "object", "properties": {"a": {"type": "integr"}}}, invalid),
        ({"type": "object", "properties": 5}, invalid),
    ]
    check_each(schemas, check)
    assert "must not be combined with" in refusal(output_schema=POINT, structured=False)


# Metadata that the SDK made.


def test_hand_written_schema_metadata_stays_unchanged() -> None:
    def tool() -> None: ...

    by_hand = FuncMetadata(arg_model=func_metadata(tool).arg_model, output_schema={"type": "object"})
    results = results_for(by_hand, dict, tool="tool")
    assert results.output_schema == {"type": "object"}
    assert sent(results, {"a": 1}).structured_content is None
