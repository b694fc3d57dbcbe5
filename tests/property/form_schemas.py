"""Kinds of fields, random schemas of forms, and the verdict of another library on answers."""

import datetime
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AnyUrl, Field

from roundtrip.testing.forms import valid_answer

__all__ = ["NAMES", "SCHEMAS", "TOLD", "accepts", "answerable"]

NAMES = ["a", "b", "c", "d_e"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


# Kinds of fields with some of their values; a form says all there is to say about the first ones.
TOLD: list[tuple[Any, list[Any]]] = [
    (str, ["", "x"]),
    (Annotated[str, Field(min_length=1, max_length=5)], ["abc"]),
    (int, [0, -7]),
    (Annotated[int, Field(ge=0, lt=10)], [3]),
    (float, [0.5]),
    (bool, [True, False]),
    (Literal["a", "b"], ["a"]),
    (list[Literal["a", "b"]], [["a"], []]),
    (Annotated[list[Color], Field(max_length=1)], [[Color.RED]]),
    (Color, [Color.BLUE]),
    (datetime.date, [datetime.date(2026, 7, 28)]),
    (datetime.datetime, [datetime.datetime(2026, 7, 28, tzinfo=datetime.UTC)]),
    (AnyUrl, [AnyUrl("https://example.org/")]),
]
SIZES = st.integers(0, 6)
BOUNDS = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.integers(), st.just(2**70))
CHOICES: st.SearchStrategy[list[str]] = st.lists(st.text(max_size=3), min_size=1, max_size=4, unique=True)
SHAPES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": SIZES, "maxLength": SIZES}),
    st.fixed_dictionaries(
        {"type": st.just("string"), "format": st.sampled_from(["email", "uri", "date", "date-time", "other"])},
        optional={"maxLength": st.integers(0, 40), "minLength": st.integers(0, 40), "title": st.text()},
    ),
    st.fixed_dictionaries({"type": st.just("string"), "pattern": st.sampled_from(["^a+$", "b", "^[A-Z]{2}$", r"\d"])}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": BOUNDS,
            "maximum": BOUNDS,
            "exclusiveMinimum": BOUNDS,
            "exclusiveMaximum": BOUNDS,
            "multipleOf": st.integers(1, 9),
            "default": BOUNDS,
        },
    ),
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("string"), "enum": CHOICES}, optional={"default": st.text(max_size=3)}),
    CHOICES.map(lambda values: {"type": "string", "oneOf": [{"const": value, "title": "T"} for value in values]}),
    st.fixed_dictionaries(
        {
            "type": st.just("array"),
            "items": st.one_of(
                CHOICES.map(lambda values: {"type": "string", "enum": values}),
                CHOICES.map(lambda values: {"anyOf": [{"const": value, "title": "T"} for value in values]}),
            ),
        },
        optional={"minItems": SIZES, "maxItems": SIZES, "uniqueItems": st.booleans()},
    ),
)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(st.sampled_from(NAMES), SHAPES, min_size=1, max_size=3),
    }
).flatmap(
    lambda form: st.lists(st.sampled_from(sorted(form["properties"])), unique=True).map(
        lambda required: {**form, "required": required}
    )
)


def accepts(schema: Mapping[str, Any], content: dict[str, Any]) -> bool:
    """Return the verdict of the `jsonschema` library, with the formats that it knows itself."""
    validator = Draft202012Validator(dict(schema), format_checker=Draft202012Validator.FORMAT_CHECKER)
    return validator.is_valid(content)  # pyright: ignore[reportUnknownMemberType]


def answerable(schema: Mapping[str, Any]) -> bool:
    try:
        valid_answer(schema)
    except ValueError:
        return False
    return True
