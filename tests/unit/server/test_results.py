"""Results of tools: content, structured content, schemas, and values that are rejected."""

import base64
import inspect
import re
import traceback
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, TypedDict, cast  # noqa: UP035
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    TextContent,
)
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer, model_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType
from typing_extensions import TypedDict as PydanticTypedDict

from roundtrip.errors import InvalidSignature, NotSendable
from roundtrip.server.content import ToolResult
from roundtrip.server.media import Audio, File, Image
from roundtrip.server.tools.results import Results, results_for, returned_type
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


class SparseRow(PydanticTypedDict, total=False):
    a: int


class Numbers(RootModel[list[int]]):
    pass


class Table(RootModel[dict[str, int]]):
    pass


class Named(dict[str, int]):
    pass


class Many(list[int]):
    pass


class Unknown:
    def __str__(self) -> str:
        return "an unknown object"


PLANTED = b"sent once and no more"
Users = TypeAliasType("Users", list[User])
OneUser = TypeAliasType("OneUser", User)
Pictures = TypeAliasType("Pictures", list[Image])
MISFIT = "does not fit the tool's output schema"
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


CONTENT: list[tuple[Any, list[str]]] = [
    (None, []),
    ("text", ["text"]),
    (5, ["5"]),
    (True, ["true"]),
    (2.5, ["2.5"]),
    (float("nan"), ["NaN"]),
    ([], []),
    (["a", 1, ["b", None]], ["a", "1", "b"]),
    (("a", {"b": 1}), ["a", '{\n  "b": 1\n}']),
    ({"a": 1}, ['{\n  "a": 1\n}']),
    ({1: "a", (2, 3): "b"}, ['{\n  "1": "a",\n  "2,3": "b"\n}']),
    ({3}, ["[\n  3\n]"]),
    (Place(1, 2), ["1", "2"]),
    (Many([1, 2]), ["1", "2"]),
    (Named(a=1), ['{\n  "a": 1\n}']),
    (Color.RED, ['"red"']),
    (NOON, ['"2026-01-01T12:00:00Z"']),
    (Unknown(), ['"an unknown object"']),
    (ADA, ['{\n  "userId": 1,\n  "name": "Ada",\n  "shown": "Ada #1"\n}']),
    (Person("Ada"), ['{\n  "name": "Ada",\n  "tags": []\n}']),
    ([Person("Ada", ["x"])], ['{\n  "name": "Ada",\n  "tags": [\n    "x"\n  ]\n}']),
    (MappingProxyType({"a": 1}), ['{\n  "a": 1\n}']),
    ([Image(data=b"i"), "and", Audio(data=b"a"), File(data=b"f")], ["image", "and", "audio", "resource"]),
    ([SdkImage(data=b"i"), SdkAudio(data=b"a")], ["image", "audio"]),
    (TextContent(type="text", text="as it is"), ["as it is"]),
]


def test_a_value_without_an_annotation_becomes_content() -> None:
    def check(value: Any, expected: list[str]) -> None:
        assert texts(sent(made(), value)) == expected

    check_each(CONTENT, check)


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


def test_image_inside_a_dict_is_rejected_with_advice() -> None:
    def check(annotation: Any, image: Any) -> None:
        advice = complaint(made(annotation), {"image": image})
        assert re.search(r"Image is not converted inside .*to_image_content\(\)", advice)

    check_each(product([EMPTY, dict, dict[str, Any]], [Image(data=b""), SdkImage(data=b"")]), check)


def test_an_image_inside_a_dict_may_be_its_block() -> None:
    result = sent(made(dict), {"image": Image(data=b"x").to_image_content()})
    assert result.structured_content is not None
    assert result.structured_content["image"]["data"] == "eA=="


async def later() -> AsyncIterator[int]:
    yield 1


def test_value_without_json_form_is_rejected() -> None:
    def check(value: Any, words: str) -> None:
        assert words in complaint(made(), value)

    reasons = [
        ({"a": NOT_TEXT}, "bytes that are not UTF-8 text"),
        (Person(name="Ada", tags=[NOT_TEXT]), "bytes that are not UTF-8 text"),  # pyright: ignore[reportArgumentType]
        (later(), "must be awaited"),
        ([{"a": ToolResult(content="x")}], "return it by itself"),
        # A repr is not a result.
        (Person, "has none"),
        (len, "has none"),
        ({"a": 1}.keys(), "has none"),
    ]
    check_each(reasons, check)


def test_a_structure_that_holds_itself_is_rejected() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    for annotation in (EMPTY, dict, dict[str, dict[str, Any]]):
        with pytest.raises(NotSendable):
            made(annotation).convert(circle)


# Structured content without a schema.


OBJECT_LIKE: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": 1}),
    ({}, {}),
    ({1: None, "b": Color.RED, "c": NOON}, {"1": None, "b": "red", "c": "2026-01-01T12:00:00Z"}),
    ({"a": Unknown()}, {"a": "an unknown object"}),
    (Named(a=1), {"a": 1}),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (ADA, ADA_DATA),
    (Table({"a": 1}), {"a": 1}),
    (Person("Ada"), {"name": "Ada", "tags": []}),
    (Strict(age=3), {"age": 3}),
    (Numbers([1]), None),
    ([ADA], None),
    ("text", None),
    (5, None),
    (None, None),
    ({3}, None),
    (Place(1, 2), None),
    (TextContent(type="text", text="x"), None),
    (Image(data=b""), None),
    (NOT_TEXT, None),
]


def test_object_result_is_structured_without_a_schema() -> None:
    def check(annotation: Any, row: tuple[Any, Any]) -> None:
        value, expected = row
        results = made(annotation)
        assert results.output_schema is None
        result = sent(results, value)
        assert result.structured_content == expected
        assert ("structured_content" in result.model_fields_set) == (expected is not None)

    check_each(product([EMPTY, Any, object, None, type(None)], OBJECT_LIKE), check)


def test_structured_content_can_be_switched_off() -> None:
    def check(annotation: Any) -> None:
        results = made(annotation, structured=False)
        assert results.output_schema is None
        assert sent(results, {"a": 1}).structured_content is None
        assert sent(results, ADA).structured_content is None

    check_each([int, dict, User, str], check)


def test_structured_content_that_is_demanded_needs_a_schema() -> None:
    needs = "structured_output=True needs a return annotation"
    annotations = [EMPTY, Any, None, Image, bytes, Unknown, list[Image]]
    assert [one for one in annotations if needs not in refusal(returns=one, structured=True)] == []
    for annotation in (User, int, dict, Color):
        assert made(annotation, structured=True).output_schema == made(annotation).output_schema


# Annotations and their schemas.


WITHOUT_SCHEMA: list[Any] = [
    bytes,
    Image,
    SdkImage,
    Audio,
    SdkAudio,
    File,
    ToolResult,
    TextContent,
    ImageContent,
    list[Image],
    list[Image | str],
    list[bytes],
    tuple[str, File],
    Sequence[TextContent],
    Iterator[Image],
    Image | None,
    str | bytes,
    ToolResult | str,
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
    (frozenset, {"type": "array", "items": {}}, frozenset({3}), [3]),
    (Sequence, {"type": "array", "items": {}}, (1,), [1]),
    (List, {"type": "array", "items": {}}, [1], [1]),  # noqa: UP006
    (list[Any], {"type": "array", "items": {}}, [Unknown()], ["an unknown object"]),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, {3}, [3]),
    (deque[int], {"type": "array", "items": {"type": "integer"}}, deque([3]), [3]),
    (list[dict[str, int]], {"type": "array"}, [{"a": 1}], [{"a": 1}]),
    (list[Person], {"type": "array"}, [Person("Ada")], [{"name": "Ada", "tags": []}]),
    (Users, {"type": "array"}, [ADA], [ADA_DATA]),
    (User | None, {}, None, None),
    (User | None, {}, ADA, ADA_DATA),
    (User | Node, {}, Node(name="x"), {"name": "x", "children": []}),
    (dict[str, int] | list[int], {}, [1], [1]),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
    (Color, {"type": "string", "enum": ["red"]}, Color.RED, "red"),
    (datetime, {"type": "string", "format": "date-time"}, NOON, "2026-01-01T12:00:00Z"),
    (Decimal, {"type": "string"}, Decimal("1.10"), "1.10"),
    (UUID, {"type": "string", "format": "uuid"}, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Place, {"type": "array", "maxItems": 2}, Place(1, 2), [1, 2]),
    (Numbers, {"type": "array"}, Numbers([1]), [1]),
    (dict[int, str], {"type": "object"}, {1: "a"}, {"1": "a"}),
    (Annotated[int, Field(ge=0)], {"type": "integer", "minimum": 0}, 5, 5),
    (Annotated[Color, "described"], {"type": "string"}, Color.RED, "red"),
    (int | InputRequiredResult, {"type": "integer"}, 5, 5),
    (Awaitable[int], {"type": "integer"}, 5, 5),
]

OBJECTS: list[tuple[Any, Any, Any]] = [
    (dict, {"a": Unknown(), 2: NOON}, {"a": "an unknown object", "2": "2026-01-01T12:00:00Z"}),
    (dict, ADA, ADA_DATA),
    (Mapping, MappingProxyType({"a": 1}), {"a": 1}),
    (Dict, {"a": 1}, {"a": 1}),  # noqa: UP006
    (dict[str, Any], {}, {}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Dict[str, int], Named(a=1), {"a": 1}),  # noqa: UP006
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
    (Person, {"name": "Ada", "tags": ["x"]}, {"name": "Ada", "tags": ["x"]}),
    (Strict, Strict(age=3), {"age": 3}),
    (Row, {"a": 1}, {"a": 1}),
    (SparseRow, {}, {}),
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
        assert re.search("Opaque has none|does not fit", words)
        assert "secret" not in words

    check_each(product([EMPTY, Any, dict, list, Opaque], [Opaque(), [Opaque()], {"a": [Opaque()]}]), check)


MISFITS: list[tuple[Any, Any]] = [
    (int, "five"),
    (int, None),
    (str, 5),
    (str, Image(data=b"")),
    (Annotated[int, Field(ge=0)], -1),
    (dict, None),
    (dict, [1]),
    (dict, "text"),
    (list, "text"),
    (list, {"a": 1}),
    (list[int], ["x"]),
    (User, {"name": "Ada"}),
    (User, None),
    (Row, {"a": "x"}),
    (Row, [1]),
    (Color, "green"),
    (dict[str, int], {"a": "x"}),
    (User | Node, 5),
    # Models that are serialized against their schemas.
    (Closed, Opened(x=1)),
    (Shouted, Shouted(x=1)),
    (list[Shouted], [Shouted(x=1)]),
    (Spelled, Spelled(x=1)),
]


def test_a_value_against_its_annotation_fails_the_call() -> None:
    assert [row for row in MISFITS if MISFIT not in complaint(made(row[0]), row[1])] == []


def test_non_json_number_is_rejected_where_numbers_are_promised() -> None:
    def check(value: float) -> None:
        cases: list[tuple[Any, Any]] = [
            (float, value),
            (list[float], [value]),
            (dict[str, float], {"a": value}),
            (Measured, Measured(x=value)),
            (Measured, {"x": str(value)}),
            (dict, {"a": value}),
            (list, [value]),
            (EMPTY, {"a": value}),
            (EMPTY, ToolResult(content="x", meta={"a": value})),
            (EMPTY, CallToolResult(content=[], structured_content={"a": value})),
        ]
        assert [case for case in cases if "JSON has no number" not in complaint(made(case[0]), case[1])] == []

    check_each([float("nan"), float("inf")], check)


def test_unsendable_value_is_rejected_at_any_depth() -> None:
    def check(value: Any, words: str) -> None:
        kind: Any = type(cast("object", value))
        cases: list[tuple[Any, Any]] = [
            (kind, value),
            (list[kind], [value]),
            (dict, {"a": [value]}),
            (EMPTY, {"a": value}),
            (EMPTY, ToolResult(content="x", meta={"a": value})),
            (EMPTY, CallToolResult(content=[], structured_content={"a": value})),
            (EMPTY, CallToolResult(content=[TextContent(type="text", text="", _meta={"a": value})])),
            (EMPTY, InputRequiredResult(request_state="\ud800")) if kind is str else (dict[str, int], {"a": value}),
        ]
        places = [place for place, (one, returned) in enumerate(cases) if words not in complaint(made(one), returned)]
        assert places == []

    check("\ud800", "not valid Unicode")
    check(10**4300, "more than 4300 digits")


def test_a_result_s_meta_has_to_be_json_data() -> None:
    with pytest.raises(NotSendable, match=r"no JSON form: .*object"):
        made().convert(ToolResult(content="x", meta={"a": object()}))


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


def test_protocol_result_is_passed_on_and_checked() -> None:
    fitting = CallToolResult(content=[], structured_content={"result": "x"})
    assert made(str).convert(fitting) is fitting
    assert made().convert(CallToolResult(content=[])) == CallToolResult(content=[])
    typed = made(Annotated[CallToolResult, Row])
    assert sent(typed, CallToolResult(content=[], structured_content={"a": 1})).structured_content == {"a": 1}
    for results, wrong in ((made(str), None), (made(str), {"result": 5}), (typed, {"a": "x"}), (made(dict), [1])):
        assert MISFIT in complaint(results, CallToolResult(content=[], structured_content=wrong))


def test_a_whole_result_is_sent_as_it_is() -> None:
    whole = ToolResult(content="3 users", structured_content={"result": "x"}, meta={"ms": 3})
    for results in (made(), made(ToolResult), made(str), made(dict), made(str, structured=False)):
        result = sent(results, whole)
        assert (texts(result), result.structured_content, result.meta) == (["3 users"], {"result": "x"}, {"ms": 3})


def test_whole_result_of_a_schema_tool_is_checked() -> None:
    for results in (made(str), made(Node), made(output_schema={"type": "object", "required": ["a"]})):
        for whole in (ToolResult(content="x"), ToolResult(structured_content={"b": 1})):
            assert MISFIT in complaint(results, whole)


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
    others: list[dict[str, Any]] = [{}, {"type": "array"}, {"type": ["object", "null"]}, {"properties": {}}]
    words = "tool 'tool': an output schema must describe an object"
    assert [schema for schema in others if words not in refusal(output_schema=schema)] == []
    invalid: list[dict[str, Any]] = [
        {"type": "object", "properties": {"a": {"type": "integr"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": 5},
    ]
    words = "output_schema is not a valid JSON schema"
    assert [schema for schema in invalid if words not in refusal(output_schema=schema)] == []
    assert "exclude each other" in refusal(output_schema=POINT, structured=False)


# Metadata that the SDK made.


def test_hand_written_schema_metadata_stays_unchanged() -> None:
    def tool() -> None: ...

    by_hand = FuncMetadata(arg_model=func_metadata(tool).arg_model, output_schema={"type": "object"})
    results = results_for(by_hand, dict, tool="tool")
    assert results.output_schema == {"type": "object"}
    assert sent(results, {"a": 1}).structured_content is None
