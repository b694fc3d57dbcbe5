"""Schemas that the protocol's forms cannot show are rejected, with the names of the form and the field."""

import decimal
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, WithJsonSchema, create_model

from roundtrip.errors import InvalidSignature, SchemaNotRenderable
from roundtrip.questions.forms import form_of
from tests.kit.raised import raised


class Inner(BaseModel):
    x: int


class Node(BaseModel):
    field: "Node | None" = None


class Level(enum.IntEnum):
    LOW = 1


NESTED: list[Any] = [
    Inner,
    Inner | None,
    list[Inner],
    dict[str, str],
    list[str],
    list[int],
    list[list[Literal["a"]]],
    tuple[str, str],
    int | str,
    int | str | None,
    decimal.Decimal,
    None,
    Any,
    Annotated[str, WithJsonSchema({"oneOf": [{"const": "a"}]})],
    Annotated[str, WithJsonSchema({"oneOf": []})],
    Annotated[str, WithJsonSchema({"not": {}})],
]


def told_of(annotation: Any) -> tuple[str | None, str]:
    """Return the field that a refusal of a form names, and its text."""
    error = raised(form_of, create_model("Form", good=(str, ...), field=(annotation, ...)))
    return error.field if isinstance(error, SchemaNotRenderable) else None, str(error)


def test_nested_field_is_rejected_by_name() -> None:
    """Shows F1, F4."""
    told = [told_of(annotation) for annotation in NESTED]
    assert [(field, text) for field, text in told if field != "field" or "form 'Form', field 'field'" not in text] == []


def test_non_string_choice_is_rejected_by_name() -> None:
    """Shows F2."""
    choices: list[Any] = [Literal[1, 2], Literal["a", 1], Level, list[Level], Literal["a", None]]
    told = [told_of(annotation) for annotation in choices]
    assert [(field, text) for field, text in told if field != "field" or "strings" not in text] == []


def test_a_model_that_contains_itself_is_rejected_and_not_followed() -> None:
    """Shows F4."""
    with pytest.raises(SchemaNotRenderable, match="form 'Node', field 'field'"):
        form_of(Node)


NO_VALUES: list[Any] = [
    dict[str, int],
    list[str],
    bytes | int,
    int | str,
    tuple[int, int],
    object,
    Inner(x=1),
    7,
    None,
    {},
    [{}],
    [1],
    [1, 2],
    {1: "One", "1": "The same as text"},
    [{"a": "A"}, {"a": "A"}],
    Literal[1, 2],
]


def test_a_value_that_no_field_can_hold_is_rejected() -> None:
    """Shows F1, F2, F4."""
    errors = [raised(form_of, value) for value in NO_VALUES]
    assert [error for error in errors if not isinstance(error, SchemaNotRenderable)] == []


def test_a_schema_that_has_no_json_schema_is_rejected() -> None:
    with pytest.raises(SchemaNotRenderable, match="form 'Form' has no JSON schema"):
        form_of(create_model("Form", field=(Callable[[], int], ...)))


def test_rejected_schema_is_the_authors_mistake() -> None:
    assert issubclass(SchemaNotRenderable, InvalidSignature)
    assert issubclass(SchemaNotRenderable, TypeError)


def test_default_without_json_form_is_rejected_by_field() -> None:
    """Shows F3."""
    shape = {"type": "string", "default": object()}
    with pytest.raises(SchemaNotRenderable, match="field 'field': its default has no JSON form"):
        form_of(create_model("Form", field=(Annotated[str, WithJsonSchema(shape)], ...)))
