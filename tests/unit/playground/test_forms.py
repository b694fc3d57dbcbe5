"""Forms of tools are made from any schema, and read back."""

from typing import Any

import pytest

from roundtrip.playground.forms import FormInvalid, ShownForm, argument_schema, posted_of

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
            posted_of(value)
