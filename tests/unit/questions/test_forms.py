"""Forms: a flat schema that the protocol allows, values from answers, and the schemas that no form can show."""

import datetime
import decimal
import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required

import pytest
from mcp.server.elicitation import render_elicitation_schema
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
)
from typing_extensions import TypedDict

from roundtrip.errors import SchemaNotRenderable
from roundtrip.questions.forms import AnswerInvalid, form_of
from tests.kit.raised import raised


def shown(annotation: Any, default: Any = ...) -> Mapping[str, Any]:
    """Return the schema of a form with a single field, without its title."""
    field = form_of(create_model("Form", field=(annotation, default))).schema["properties"]["field"]
    return {key: value for key, value in field.items() if key != "title"}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


PRIMITIVES: list[tuple[Any, Any]] = [
    (Annotated[str, Field(min_length=2, max_length=5)], {"type": "string", "minLength": 2, "maxLength": 5}),
    (Annotated[str, Field(pattern="^a")], {"type": "string"}),
    (AnyUrl, {"type": "string", "format": "uri", "minLength": 1}),
    (Annotated[str, WithJsonSchema({"type": "string", "format": "email"})], {"type": "string", "format": "email"}),
    (datetime.time, {"type": "string"}),
    (Literal["only"], {"type": "string", "enum": ["only"]}),
    (set[Color], {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}),
    (
        Annotated[str, WithJsonSchema({"type": "string", "enum": ["s"], "enumNames": ["Small"]})],
        {"type": "string", "enum": ["s"], "enumNames": ["Small"]},
    ),
    (Annotated[int, Field(gt=1, lt=9)], {"type": "integer", "minimum": 2, "maximum": 8}),
    (Annotated[int, Field(ge=5, gt=1, le=7, lt=9)], {"type": "integer", "minimum": 5, "maximum": 7}),
    (Annotated[float, Field(ge=0.5, le=1)], {"type": "number", "minimum": 0.5, "maximum": 1}),
    (Annotated[float, Field(gt=0.5, lt=1)], {"type": "number"}),
    (Annotated[str, Field(description="As on the card.")], {"type": "string", "description": "As on the card."}),
]
"""Fields that are not among the single values of `test_richer_forms`."""


def test_primitive_is_shown_with_its_protocol_constraints() -> None:
    """Shows F1."""
    assert [shown(annotation) for annotation, _ in PRIMITIVES] == [shape for _, shape in PRIMITIVES]


def test_nullable_field_is_shown_as_optional() -> None:
    """Shows F3, F4."""
    nullable: list[Any] = [str | None, int | None, bool | None, Color | None, Literal["a"] | None, list[Color] | None]
    forms = [form_of(create_model("Form", field=(annotation, None))) for annotation in nullable]
    fields = [form.schema["properties"]["field"] for form in forms]
    assert [field for field in fields if {"anyOf", "default", "$ref"} & field.keys() or field["type"] == "null"] == []
    assert [form.schema for form in forms if "required" in form.schema or form.parse({}).field is not None] == []


def test_an_aliased_field_is_shown_and_answered_under_its_alias() -> None:
    class Aliased(BaseModel):
        card_number: str = Field(alias="cardNumber")
        pin: int = Field(validation_alias="PIN")

    form = form_of(Aliased)
    assert set(form.schema["properties"]) == set(form.schema["required"]) == {"cardNumber", "PIN"}
    assert form.parse({"cardNumber": "1", "PIN": 2}) == Aliased.model_validate({"cardNumber": "1", "PIN": 2})


def test_sdk_renderable_forms_render_alike() -> None:
    """Shows F1, F4."""

    class Plain(BaseModel):
        name: str = Field(min_length=1, description="Who?")
        age: int | None = Field(default=None, ge=0)
        size: Literal["s", "l"] = "s"
        extras: list[Literal["bag", "card"]] = []

    shown, theirs = form_of(Plain).schema, render_elicitation_schema(Plain)
    assert shown["properties"] == theirs["properties"]
    assert shown["required"] == theirs["required"]


def test_dataclasses_and_typed_dicts_are_forms_too() -> None:
    @dataclass
    class Point:
        x: int
        y: int = 0

    class Named(TypedDict, total=False):
        name: Required[str]
        age: int

    assert form_of(Point).schema["required"] == ["x"]
    assert form_of(Point).parse({"x": 1}) == Point(1)
    assert form_of(Named).schema["required"] == ["name"]
    assert form_of(Named).parse({"name": "n"}) == {"name": "n"}


def test_a_form_without_fields_is_accepted_without_content() -> None:
    class Empty(BaseModel):
        pass

    form = form_of(Empty)
    assert form.schema["properties"] == {}
    assert form.parse(None) == form.parse({}) == Empty()


def test_equal_schemas_have_equal_digests_and_any_visible_difference_another() -> None:
    def digest(annotation: Any, default: Any = ..., name: str = "field") -> bytes:
        fields: dict[str, Any] = {name: (annotation, default)}
        return form_of(create_model("Form", **fields)).digest

    assert digest(str) == digest(str)
    variants = [digest(str), digest(int), digest(str, "x"), digest(str, "y"), digest(Literal["x"])]
    variants += [digest(str, name="f"), digest(Annotated[str, Field(description="said")])]
    assert len(set(variants)) == len(variants)


# Answers.


class Guest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=2)
    age: Annotated[int, Field(ge=18)]
    color: Color = Color.RED

    @field_validator("name")
    @classmethod
    def known(cls, name: str, info: ValidationInfo) -> str:
        if name == "Mallory":
            raise ValueError("not on the list")
        return name


WRONG: list[tuple[Any, str]] = [
    (None, "with no content"),
    ({}, "name: Field required; age: Field required"),
    ({"name": "A", "age": 36}, "name: String should have at least 2 characters"),
    ({"name": "Ada", "age": 3}, "age: Input should be greater than or equal to 18"),
    ({"name": "Ada", "age": "old"}, "age: Input should be a valid integer"),
    ({"name": "Ada", "age": 36, "color": "green"}, "color: Input should be 'red' or 'blue'"),
    ({"name": "Mallory", "age": 36}, "name: Value error, not on the list"),
    ({"name": "Ada", "age": 36, "admin": True}, "admin: Extra inputs are not permitted"),
]


def test_invalid_answer_names_the_field_and_reason() -> None:
    errors = [(raised(form_of(Guest).parse, content), reason) for content, reason in WRONG]
    assert [error for error, _ in errors if not isinstance(error, AnswerInvalid)] == []
    assert [(error, reason) for error, reason in errors if reason not in str(error)] == []


def test_reason_is_short_and_does_not_repeat_input() -> None:
    fields: dict[str, Any] = {f"field_{number}": (int, ...) for number in range(50)}
    crowd = create_model("Crowd", **fields)
    reason = str(raised(form_of(crowd).parse, {f"field_{number}": "a secret " * 100 for number in range(50)}))
    assert "secret" not in reason
    assert reason.count("field_") == 3
    assert len(reason) <= 300


# Schemas that the protocol's forms cannot show are rejected, with the names of the form and the field.


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
    for schema in ("int, please", {1, 2}):
        with pytest.raises(SchemaNotRenderable, match="a schema must be a type such as int"):
            form_of(schema)
    with pytest.raises(SchemaNotRenderable, match="form 'Form' has no JSON schema"):
        form_of(create_model("Form", field=(Callable[[], int], ...)))


def test_default_without_json_form_is_rejected_by_field() -> None:
    """Shows F3."""
    shape = {"type": "string", "default": object()}
    with pytest.raises(SchemaNotRenderable, match="field 'field': its default has no JSON form"):
        form_of(create_model("Form", field=(Annotated[str, WithJsonSchema(shape)], ...)))


class Coupon(BaseModel):
    code: Annotated[str, AfterValidator({"a": "A"}.__getitem__)]


class Weight(BaseModel):
    kilos: float


def test_answer_that_cannot_be_checked_fills_nothing_in() -> None:
    assert form_of(Coupon).valid_fields({"code": "a"}) == {"code": "A"}
    assert form_of(Coupon).valid_fields({"code": "unknown"}) == {}
    assert form_of(Weight).valid_fields({"kilos": math.nan}) == {}
