"""A field reads a typed line, checks it by its schema, and survives an invalid schema."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.client.fields import check_content, hint_of, label_of, read_typed
from roundtrip.questions.fields import FieldInvalid, FormField, fields_of
from roundtrip.text import printable
from tests.kit.tiers import examples

TITLED = {"type": "string", "oneOf": [{"const": "a", "title": "Ash"}, {"const": "b", "title": "Birch"}]}
SEVERAL = {"type": "array", "items": {"enum": ["x", "y", "z"]}, "maxItems": 2}


def field(shape: Any, *, required: bool = True) -> FormField:
    (only,) = fields_of({"properties": {"f": shape}, "required": ["f"] if required else []})
    return only


PARSED: list[tuple[Any, str, object]] = [
    ({"type": "string"}, "  text ", "text"),
    ({"type": "string"}, '""', ""),
    ({"type": "integer"}, "-3", -3),
    ({"type": "number"}, "2.5", 2.5),
    ({"type": "boolean"}, "Yes", True),
    ({"type": "boolean"}, "n", False),
    (TITLED, "2", "b"),
    ({"type": "string", "enum": ["p", "q"], "enumNames": ["P!", "Q!"]}, "Q!", "q"),
    ({"enum": ["2", "1"]}, "1", "2"),
    (SEVERAL, "1, 3", ["x", "z"]),
    (SEVERAL, "y,y", ["y"]),
    (SEVERAL, "", []),
    ({"type": "object"}, '{"a": 1}', {"a": 1}),
    ({"type": "string", "format": "date-time"}, "2026-02-28T10:00:00z", "2026-02-28T10:00:00z"),
    ({"type": "integer", "default": 7}, "", 7),
    ({**TITLED, "default": "b"}, "", "b"),
]


def test_typed_text_is_parsed() -> None:
    read = [read_typed(field(shape), typed) for shape, typed, _ in PARSED]
    assert read == [(True, value) for *_, value in PARSED]
    assert [type(value) for _, value in read] == [type(value) for *_, value in PARSED]


UNFIT: list[tuple[Any, str, str]] = [
    ({"type": "string"}, "", "required"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "a", "2 to 3 characters"),
    ({"type": "integer"}, "1.5", "a whole number"),
    ({"type": "integer"}, "9" * 5000, "a whole number"),
    ({"type": "number"}, "nan", "a number"),
    ({"type": "boolean"}, "maybe", "yes or no"),
    (TITLED, "3", "a number from 1 to 2"),
    (TITLED, "0", "a number from 1 to 2"),
    ({"oneOf": [{"const": "a", "title": "T"}, {"const": "b", "title": "T"}]}, "T", "not a choice"),
    (SEVERAL, "1,2,3", "at most 2 of them"),
    (SEVERAL, "1,w", "'w' is not a choice"),
    ({"type": "string", "format": "date"}, "20260228", "a date"),
    ({"type": "integer", "default": "seven"}, "", "a whole number"),
    ({"type": "object"}, "{", "JSON"),
]


def said_of(shape: Any, typed: str) -> str:
    try:
        return f"taken as {read_typed(field(shape), typed)}"
    except FieldInvalid as invalid:
        return str(invalid)


def test_unfit_input_is_explained() -> None:
    said = [(said_of(shape, typed), reason) for shape, typed, reason in UNFIT]
    assert [(text, reason) for text, reason in said if reason not in text] == []


def test_an_optional_field_may_be_left_out() -> None:
    assert read_typed(field({"type": "string"}, required=False), " ") == (False, None)


def test_written_content_gets_the_defaults_and_is_checked() -> None:
    schema = {"properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "boolean"}}, "required": ["b"]}
    assert check_content(schema, {"b": True}) == {"a": 1, "b": True}
    for content, reason in (({}, "'b' is required"), ({"b": 1}, "'b': it must be yes"), ({"c": 1}, "no field 'c'")):
        with pytest.raises(FieldInvalid, match=reason):
            check_content(schema, content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "oneOf", "const", "title", "items", "minimum", "maxLength", "default", "format"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(100))
@given(shape=JSON, required=JSON, typed=st.text(max_size=6))
def test_no_schema_breaks_the_form(shape: Any, required: Any, typed: str) -> None:
    for made in fields_of({"properties": {"f": shape}, "required": required}):
        for shown in (label_of(made), hint_of(made)):
            assert printable(shown) == shown
        with suppress(FieldInvalid):
            filled, value = read_typed(made, typed)
            if filled:
                made.check(value)
