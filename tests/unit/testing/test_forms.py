"""Answers made from a form's schema, tried on real servers: each valid one is taken, each invalid one asked again."""

from collections.abc import Callable
from typing import Any

import pytest

from roundtrip.testing.forms import invalid_answers, other_valid_answer, valid_answer

SAMPLES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "string"}, "text", "other"),
    ({"type": "string", "minLength": 6}, "textte", "othero"),
    ({"type": "string", "format": "email", "maxLength": 6}, "a@b.co", "e@b.co"),
    ({"type": "string", "format": "uri", "minLength": 22}, "https://example.com/aa", "https://example.com/bb"),
    ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-29"),
    ({"type": "string", "format": "date-time"}, "2026-07-28T09:30:00Z", "2026-07-29T09:30:00Z"),
    ({"type": "string", "pattern": "^1+$"}, "1", "11"),
    ({"type": "string", "oneOf": [{"const": "p", "title": "P"}, {"const": "q", "title": "Q"}]}, "p", "q"),
    ({"type": "string", "enum": ["p", "q"], "default": "q"}, "q", "p"),
    ({"type": "integer", "minimum": -3, "maximum": -2}, -3, -2),
    ({"type": "integer", "minimum": 0.5, "maximum": 2.5}, 1, 2),
    ({"type": "integer", "minimum": 10**400}, 10**400, 10**400 + 1),
    ({"type": "integer", "minimum": 5, "default": 4}, 5, 6),
    ({"type": "number", "minimum": 0.25, "maximum": 0.75}, 0.25, 0.75),
    ({"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.75}, 0.75, 0.5),
    ({"type": "boolean", "default": False}, False, True),
    ({"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 2}, ["x", "y"], ["y", "z"]),
    ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}}, ["x"], []),
    ({"type": "array", "items": {"enum": ["x"]}, "default": []}, [], ["x"]),
    ({"type": "string", "maxLength": 0}, "", None),
    ({"type": "integer", "minimum": 3, "maximum": 3}, 3, None),
    ({"type": "string", "enum": ["p"]}, "p", None),
]
"""Shapes of a required field, with its two valid samples; None if there is no second one."""


def test_the_samples_of_a_required_field() -> None:
    def made(shape: dict[str, Any]) -> tuple[Any, Any]:
        schema = {"type": "object", "properties": {"f": shape}, "required": ["f"]}
        return valid_answer(schema), other_valid_answer(schema)

    wanted = [(shape, ({"f": first}, None if second is None else {"f": second})) for shape, first, second in SAMPLES]
    assert [(shape, made(shape)) for shape, *_ in SAMPLES] == wanted


BROKEN: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "string", "minLength": 2, "maxLength": 3}, [["text"], "t", "aaaa"]),
    ({"type": "string", "maxLength": 2**31}, [["text"]]),
    ({"type": "string", "format": "date"}, [["text"], "not a date"]),
    ({"type": "string", "pattern": "^t"}, [["text"], "!", "other"]),
    ({"type": "integer", "minimum": 0, "maximum": 9}, ["not a number", ["1"], 1.5, -1, 10]),
    ({"type": "number", "exclusiveMinimum": 0}, ["not a number", ["1"], 0]),
    ({"type": "boolean"}, ["not a boolean", ["true"]]),
    ({"type": "string", "enum": ["none of these"]}, ["none of these!", ["none of these"]]),
    (
        {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 1, "maxItems": 2},
        ["none of these", [], ["none of these"], ["x", "y", "z"]],
    ),
]


def test_the_ways_to_break_a_field() -> None:
    def made(shape: dict[str, Any]) -> list[Any]:
        schema = {"type": "object", "properties": {"f": shape}}
        missing, *required = invalid_answers({**schema, "required": ["f"]})
        assert (missing, required) == ({}, invalid_answers(schema))
        return [content["f"] for content in required]

    assert [(shape, made(shape)) for shape, _ in BROKEN] == BROKEN


def test_optional_field_appears_in_the_second_sample_only() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "note": {"type": "string"},
            "count": {"type": "integer", "default": 4},
            "nothing": {"type": "string", "enum": []},
        },
    }
    assert valid_answer(schema) == {"count": 4}
    assert other_valid_answer(schema) == {"note": "text", "count": 1}


def test_a_required_field_with_a_default_is_not_missed() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean", "default": True}}, "required": ["ok"]}
    assert {} not in invalid_answers(schema)


NO_FORMS: list[tuple[dict[str, Any] | None, str]] = [
    (None, "the question has no form"),
    ({"type": "object"}, "and its fields in 'properties'"),
    ({"type": "string"}, "must have type 'object'"),
    ({"type": "object", "properties": {}, "required": ["f"]}, "requires 'f', which is not one of its fields"),
    ({"type": "object", "properties": {"f": {"$ref": "#/$defs/F"}}}, "'f' does not fit a form"),
    ({"type": "object", "properties": {"f": {"type": ["string", "null"]}}}, "'f' does not fit a form"),
    ({"type": "object", "properties": {"f": True}}, "'f' does not fit a form"),
    ({"type": "object", "properties": {"f\x1b": {"minLength": "x"}}}, r"properties.f\x1b.minLength: 'x' is not"),
]


def reason_of(make: Callable[[Any], object], schema: object) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the reason is compared by the caller
        make(schema)
    return str(refused.value)


def test_non_form_is_rejected_with_a_reason() -> None:
    for make in (valid_answer, other_valid_answer, invalid_answers):
        reasons = [(schema, reason, reason_of(make, schema)) for schema, reason in NO_FORMS]
        assert [found for found in reasons if found[1] not in found[2]] == []


UNSATISFIABLE: list[dict[str, Any]] = [
    {"type": "number", "minimum": 1e999},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "string", "format": "date", "maxLength": 9},
    {"type": "string", "pattern": "^an unguessable text$"},
    {"type": "string", "enum": []},
    {"type": "integer", "enum": ["a"]},
    {"type": "array", "items": {"enum": ["a"]}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["a"]}, "minItems": 10**9},
]


def test_unsatisfiable_required_field_is_named() -> None:
    said = "no valid value of the required field 'f' is known"
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": {"ok": {"type": "boolean"}, "f": shape}, "required": ["f"]}
        for shape in UNSATISFIABLE
    ]
    for make in (valid_answer, other_valid_answer, invalid_answers):
        assert [schema for schema in schemas if said not in reason_of(make, schema)] == []
    assert [valid_answer({**schema, "required": ["ok"]}) for schema in schemas] == [{"ok": True}] * len(schemas)
