"""Forms of tools are made from any schema, and results are shown by their kind, neither as a program nor as a path."""

import base64
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from roundtrip.playground.forms import ShownForm, argument_schema, parse_posted
from roundtrip.playground.results import result_data
from roundtrip.trace.page.requests import FormInvalid

SCHEMA: dict[str, Any] = {
    "properties": {
        "film": {"type": "string", "title": "Film"},
        "genre": {"$ref": "#/$defs/Genre"},
        "year": {"anyOf": [{"type": "integer", "minimum": 1900}, {"type": "null"}], "default": None},
        "rated": {"type": ["boolean", "null"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Genre"}},
        "seat": {"$ref": "#/$defs/Seat"},
        "kind": {"const": "film"},
    },
    "required": ["film", "genre", 7],
    "$defs": {
        "Genre": {"type": "string", "enum": ["drama", "comedy"]},
        "Seat": {"type": "object", "properties": {"row": {"type": "integer"}}},
    },
}


def controls(schema: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    form = ShownForm("t", argument_schema(schema))
    return {field["name"]: (field["control"], field["required"]) for field in form.data()}


def ids_of(form: ShownForm) -> dict[str, str]:
    return {field["name"]: field["id"] for field in form.data()}


def test_references_and_alternatives_are_resolved() -> None:
    assert controls(SCHEMA) == {
        "film": ("line", True),
        "genre": ("radios", True),
        "year": ("line", False),
        "rated": ("radios", False),
        "tags": ("checkboxes", False),
        "seat": ("lines", False),
        "kind": ("radios", False),
    }


def test_texts_become_typed_arguments() -> None:
    form = ShownForm("t", argument_schema(SCHEMA))
    texts = {"film": "Solaris", "genre": "0", "year": "1972", "rated": "yes", "tags": "1", "seat": '{"row": 3}'}
    ids = ids_of(form)
    assert form.read({ids[name]: [text] for name, text in texts.items()}) == {
        **{"film": "Solaris", "genre": "drama", "year": 1972, "rated": True},
        **{"tags": ["comedy"], "seat": {"row": 3}},
    }


def test_each_wrong_field_has_its_own_error() -> None:
    form = ShownForm("t", argument_schema(SCHEMA))
    ids = ids_of(form)
    with pytest.raises(FormInvalid) as caught:
        form.read({ids["year"]: ["1800"], ids["seat"]: ["{"]})
    assert caught.value.errors.keys() == {ids[name] for name in ("film", "genre", "year", "seat")}


def test_field_keeps_its_id_beside_other_fields() -> None:
    one = ids_of(ShownForm("t", {"properties": {"film": {"type": "string"}}}))
    two = ids_of(ShownForm("t", {"properties": {"year": {"type": "integer"}, "film": {"type": "string"}}}))
    other = ids_of(ShownForm("u", {"properties": {"film": {"type": "string"}}}))
    assert one["film"] == two["film"]
    assert len({one["film"], two["year"], other["film"]}) == 3


ODD_SCHEMAS: list[dict[str, Any]] = [
    {},
    {"properties": 7},
    {"properties": {"a": None, "b": [], "c": {"type": 7}, "d": {"anyOf": [{}]}, "e": {"oneOf": 3}}},
    {"properties": {"a": {"$ref": "#/properties/a"}}},
    {"properties": {"a": {"$ref": "https://elsewhere.example/schema"}, "b": {"$ref": "#/$defs/none"}}},
    {"properties": {"a": {"allOf": [{"$ref": "#/properties/b"}]}, "b": {"allOf": [{"$ref": "#/properties/a"}]}}},
]


def test_schema_of_any_shape_has_a_form() -> None:
    for schema in ODD_SCHEMAS:
        ShownForm("t", argument_schema(schema)).data()


def test_fields_of_another_shape_are_rejected() -> None:
    many: dict[str, list[str]] = {str(number): [] for number in range(1001)}
    shapes: list[object] = [None, [], {"a": "b"}, {"a": [1]}, many]
    for value in shapes:
        with pytest.raises(ValueError, match="must be"):
            parse_posted(value)


DATA = base64.b64encode(b"bytes").decode()


def shown(block: ContentBlock) -> dict[str, object]:
    return result_data(CallToolResult(content=[block]))["blocks"][0]


def test_pictures_and_sounds_are_shown() -> None:
    assert shown(ImageContent(data=DATA, mime_type="image/png"))["source"] == f"data:image/png;base64,{DATA}"
    assert shown(AudioContent(data=DATA, mime_type="audio/wav"))["kind"] == "sound"


def test_other_media_are_files() -> None:
    for mime_type in ("image/svg+xml", "text/html", "image/png;x,<b>", "", "application/pdf"):
        block = shown(ImageContent(data=DATA, mime_type=mime_type))
        assert (block["kind"], block.get("source")) == ("file", None)


def test_data_that_is_not_base64_is_text() -> None:
    assert shown(ImageContent(data='"><script>', mime_type="image/png"))["kind"] == "text"


NAMES = {
    "file:///a/notes.txt": "notes.txt",
    "file:///a/..%2F..%2Fetc%2Fpasswd": "passwd",
    "file:///a/..": "file",
    "file:///C:%5Cx%5Cevil.exe": "evil.exe",
    "file:///a/.bashrc": "bashrc",
    "data:,x": "x",
    f"file:///{'x' * 300}.txt": f"{'x' * 56}.txt",
}


def test_names_of_files_hold_no_path() -> None:
    texts = {uri: TextResourceContents(uri=uri, text="x") for uri in NAMES}
    blobs = {uri: BlobResourceContents(uri=uri, blob=DATA) for uri in NAMES}
    for resources in (texts, blobs):
        assert {uri: shown(EmbeddedResource(resource=one))["name"] for uri, one in resources.items()} == NAMES


def test_only_web_addresses_are_links() -> None:
    opens = {"https://a.example": True, "javascript:alert(1)": False, "file:///etc": False}
    assert {uri: shown(ResourceLink(name="x", uri=uri))["opens"] for uri in opens} == opens


def test_long_texts_are_shortened() -> None:
    """The page gets them again at each change."""
    text = str(shown(TextContent(text="x" * 100_007))["text"])
    assert text.endswith("x… (7 more characters)")
    structured = result_data(CallToolResult(content=[], structured_content={"rows": [[1]] * 20_000}))["structured"]
    assert len(structured) < 101_000


def test_recalled_result_says_when_its_call_ended() -> None:
    for meta, said in (({"roundtrip/recalled": "2026-08-01T12:00:00Z"}, "2026-08-01T12:00:00Z"), ({}, None)):
        result = CallToolResult.model_validate({"content": [], "_meta": meta})
        assert result_data(result)["recalled"] == said
    assert (
        result_data(CallToolResult.model_validate({"content": [], "_meta": {"roundtrip/recalled": 7}}))["recalled"]
        is None
    )
