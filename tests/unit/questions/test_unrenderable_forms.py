"""Schemas that the protocol's forms cannot show are rejected, with the names of the form and the field."""

import decimal
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, WithJsonSchema, create_model

from roundtrip.errors import InvalidSignature, SchemaNotRenderable
from roundtrip.questions.forms import form_of


class Inner(BaseModel):
    x: int


class Node(BaseModel):
    field: "Node | None" = None


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    "annotation",
    [
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
    ],
    ids=repr,
)
def test_nested_field_is_rejected_by_name(annotation: Any) -> None:
    """Shows F1, F4."""
    with pytest.raises(SchemaNotRenderable, match="form 'Form', field 'field'") as caught:
        form_of(create_model("Form", good=(str, ...), field=(annotation, ...)))
    assert caught.value.field == "field"


@pytest.mark.parametrize(
    "annotation", [Literal[1, 2], Literal["a", 1], Level, list[Level], Literal["a", None]], ids=repr
)
def test_non_string_choice_is_rejected_by_name(annotation: Any) -> None:
    """Shows F2."""
    with pytest.raises(SchemaNotRenderable, match=r"field 'field'.*strings") as caught:
        form_of(create_model("Form", field=(annotation, ...)))
    assert caught.value.field == "field"


def test_a_model_that_contains_itself_is_rejected_and_not_followed() -> None:
    """Shows F4."""
    with pytest.raises(SchemaNotRenderable, match="form 'Node', field 'field'"):
        form_of(Node)


@pytest.mark.parametrize("schema", [dict[str, int], list[str], bytes | int, [1, 2], object], ids=repr)
def test_a_value_that_no_field_can_hold_is_rejected(schema: Any) -> None:
    """Shows F1."""
    with pytest.raises(SchemaNotRenderable):
        form_of(schema)


def test_a_schema_that_has_no_json_schema_is_rejected() -> None:
    with pytest.raises(SchemaNotRenderable, match="form 'Form' has no JSON schema"):
        form_of(create_model("Form", field=(Callable[[], int], ...)))


def test_rejected_schema_is_the_authors_mistake() -> None:
    assert issubclass(SchemaNotRenderable, InvalidSignature)


def test_default_without_json_form_is_rejected_by_field() -> None:
    """Shows F3."""
    shape = {"type": "string", "default": object()}
    with pytest.raises(SchemaNotRenderable, match="field 'field': its default has no JSON form"):
        form_of(create_model("Form", field=(Annotated[str, WithJsonSchema(shape)], ...)))
