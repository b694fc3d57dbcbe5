"""Random forms and random answers: a form is flat, and an answer becomes a value or a reason."""

import datetime
import enum
from typing import Annotated, Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import ElicitResult
from pydantic import AnyUrl, BaseModel, Field, create_model

from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.testing.strategies import outcomes
from tests.kit.tiers import examples


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
KINDS: list[tuple[Any, list[Any]]] = [
    *TOLD,
    (Annotated[str, Field(pattern="^[a-z]+$")], ["abc"]),
    (Annotated[float, Field(gt=0, le=1)], [1.0]),
]
ALLOWED = {
    "string": {"minLength", "maxLength", "format", "enum", "oneOf", "enumNames"},
    "number": {"minimum", "maximum"},
    "integer": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"items", "minItems", "maxItems"},
}


@st.composite
def fields(draw: st.DrawFn) -> tuple[Any, Any]:
    annotation, defaults = draw(st.sampled_from(KINDS))
    match draw(st.sampled_from(["required", "defaulted", "nullable"])):
        case "required":
            return annotation, ...
        case "defaulted":
            return annotation, draw(st.sampled_from(defaults))
        case _:
            return annotation | None, draw(st.sampled_from([None, *defaults]))


def form(chosen: dict[str, Any]) -> type[BaseModel]:
    return create_model("Form", **chosen)


MODELS: st.SearchStrategy[type[BaseModel]] = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d_e"]), fields(), max_size=4
).map(form)
TEXT: st.SearchStrategy[str] = st.one_of(
    st.text(max_size=10), st.sampled_from(["red", "a", "2026-07-28", "\ud800", "https://example.org"])
)
PLAIN: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
VALUES: st.SearchStrategy[Any] = st.one_of(PLAIN, st.lists(PLAIN, max_size=3), st.dictionaries(TEXT, PLAIN, max_size=2))
CONTENTS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.dictionaries(st.one_of(st.sampled_from(["a", "b", "c", "d_e"]), TEXT), VALUES, max_size=6)
)


def contents(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Return a strategy for any content, and for answers that look right for the model's form."""
    return st.one_of(CONTENTS, outcomes(form_of(model).schema).map(lambda outcome: outcome.content))


def outcome(form: Form, content: Any) -> BaseModel | str:
    try:
        return form.parse(content)
    except AnswerInvalid as error:
        return str(error)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(model=MODELS)
def test_form_is_flat_and_uses_only_protocol_types(model: type[BaseModel]) -> None:
    """Shows F1, F2, F3, F4."""
    schema = form_of(model).schema
    assert schema["type"] == "object"
    assert set(schema) <= {"type", "properties", "required", "title"}
    assert set(schema.get("required", ())) <= set(schema["properties"])
    for name, shape in schema["properties"].items():
        assert set(shape) - {"type", "title", "description", "default"} <= ALLOWED[shape["type"]]
        assert shape.get("default", 0) is not None
        assert ("default" in shape) <= (name not in schema.get("required", ()))
        assert shape.get("format") in (None, "email", "uri", "date", "date-time")
    # It is what the wire takes as a schema, and its values fit the wire as well.
    defaults = {name: shape["default"] for name, shape in schema["properties"].items() if "default" in shape}
    ElicitResult(action="accept", content=defaults)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(model=MODELS, data=st.data())
def test_any_answer_becomes_a_value_or_a_short_reason(model: type[BaseModel], data: st.DataObject) -> None:
    """Shows S9."""
    result = outcome(form_of(model), data.draw(contents(model)))
    if isinstance(result, str):
        assert 0 < len(result) <= 300
    else:
        assert isinstance(result, model)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(model=MODELS, data=st.data())
def test_reading_an_answer_twice_gives_the_same(model: type[BaseModel], data: st.DataObject) -> None:
    content = data.draw(contents(model))
    assert repr(outcome(form_of(model), content)) == repr(outcome(form_of(model), content))


@settings(max_examples=examples(100), deadline=None, database=None)
@given(model=MODELS)
def test_the_defaults_alone_are_an_answer_where_nothing_is_required(model: type[BaseModel]) -> None:
    """Shows F3."""
    rendered = form_of(model)
    assert isinstance(outcome(rendered, {}), str) == bool(rendered.schema.get("required"))
