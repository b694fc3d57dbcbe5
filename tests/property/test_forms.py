"""Random forms and random answers: a form is flat, and an answer becomes a value or a reason."""

from typing import Annotated, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import ElicitResult
from pydantic import BaseModel, Field, create_model

from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.testing.strategies import outcomes
from tests.kit.tiers import examples
from tests.property.form_schemas import TOLD

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
