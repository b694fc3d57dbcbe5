"""Answers drawn from a form's schema: the valid ones are accepted wherever it is checked, the invalid ones refused."""

import importlib
import sys
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from mcp_types import ElicitResult
from pydantic import EmailStr, Field, HttpUrl, create_model

from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.testing.forms import invalid_answers, other_valid_answer, valid_answer
from roundtrip.testing.strategies import answers, outcomes
from tests.kit.tiers import examples
from tests.property.form_schemas import NAMES, SCHEMAS, TOLD, accepts, answerable


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


KINDS: list[Any] = [
    *(annotation for annotation, _ in TOLD),
    EmailStr,
    Annotated[EmailStr, Field(min_length=20, max_length=25)],
    HttpUrl,
    Annotated[str, Field(min_length=300)],
    Annotated[int, Field(gt=-3, lt=3)],
    Annotated[float, Field(ge=0.3, le=0.4)],
    Annotated[float, Field(ge=10**17 + 1, le=2 * 10**17 + 1)],
    set[Literal["a", "b", "c"]],
    Annotated[set[Size], Field(min_length=2)],
    Annotated[list[Literal["a", "b", "c"]], Field(min_length=1, max_length=2)],
]


@st.composite
def forms(draw: st.DrawFn) -> Form:
    chosen: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        kind = draw(st.sampled_from(KINDS))
        chosen[name] = draw(st.sampled_from([(kind, ...), (kind | None, ...), (kind | None, None)]))
    return form_of(create_model("Form", **chosen))


RUN = settings(max_examples=examples(60), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def takes(form: Form, content: dict[str, Any]) -> bool:
    """Return the server's verdict on content that has come over the wire."""
    sent = ElicitResult(action="accept", content=content).model_dump_json()
    try:
        form.parse(ElicitResult.model_validate_json(sent).content)
    except AnswerInvalid:
        return False
    return True


@RUN
@given(form=forms(), data=st.data())
def test_server_accepts_exactly_the_valid_answers_of_its_form(form: Form, data: st.DataObject) -> None:
    valid = data.draw(answers(form.schema))
    assert accepts(form.schema, valid)
    assert takes(form, valid)
    assert not takes(form, data.draw(answers(form.schema, valid=False)))
    assert takes(form, valid_answer(form.schema))
    other = other_valid_answer(form.schema)
    assert other is None or takes(form, other)
    assert not any(takes(form, content) for content in invalid_answers(form.schema))


@RUN
@given(schema=SCHEMAS, data=st.data())
def test_valid_answers_validate_against_any_schema_of_a_form(schema: dict[str, Any], data: st.DataObject) -> None:
    if not answerable(schema):
        with pytest.raises(ValueError, match="no valid value of the required field"):
            answers(schema)
        return
    first = valid_answer(schema)
    assert accepts(schema, first)
    other = other_valid_answer(schema)
    assert other is None or (other != first and accepts(schema, other))
    assert accepts(schema, data.draw(answers(schema)))


@RUN
@given(schema=SCHEMAS, data=st.data())
def test_invalid_answers_are_wrong_in_one_field(schema: dict[str, Any], data: st.DataObject) -> None:
    assume(answerable(schema))
    first = valid_answer(schema)
    # The library checks neither of them without packages that are not needed here.
    told = all(shape.get("format") not in ("uri", "date-time") for shape in schema["properties"].values())
    samples = invalid_answers(schema)
    assert samples
    for content in samples:
        assert not (told and accepts(schema, content))
        assert sum(first.get(name) != content.get(name) for name in schema["properties"]) == 1
    assert not (told and accepts(schema, data.draw(answers(schema, valid=False))))


ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "count": {"type": "integer", "minimum": 1},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
        "note": {"type": "string", "default": "none"},
    },
    "required": ["name", "count", "sizes"],
}
SIMPLEST = {"name": "text", "count": 1, "sizes": ["s"]}
# Explaining a finding, which no test reads, takes longer than finding it.
SEARCH = settings(max_examples=examples(1000), database=None, deadline=None, phases=[Phase.generate, Phase.shrink])


def test_answers_shrink_to_the_samples() -> None:
    assert find(answers(ORDER), lambda content: True, settings=SEARCH) == SIMPLEST
    assert find(answers(ORDER), lambda content: content["count"] > 5, settings=SEARCH) == {**SIMPLEST, "count": 6}
    assert find(answers(ORDER), lambda content: "note" in content, settings=SEARCH) == {**SIMPLEST, "note": "none"}
    long = find(answers(ORDER), lambda content: len(content["name"]) > 5, settings=SEARCH)
    assert long == {**SIMPLEST, "name": "000000"}
    both = find(answers(ORDER), lambda content: len(content["sizes"]) > 1, settings=SEARCH)
    assert both in ({**SIMPLEST, "sizes": ["s", "l"]}, {**SIMPLEST, "sizes": ["l", "s"]})


def test_outcomes_are_refusals_and_valid_and_invalid_answers() -> None:
    outcome = {
        action: find(outcomes(ORDER), lambda outcome, action=action: outcome.action == action, settings=SEARCH)
        for action in ("accept", "decline", "cancel")
    }
    assert [drawn.content for drawn in outcome.values()] == [SIMPLEST, None, None]
    refused = find(outcomes(ORDER), lambda outcome: not accepts(ORDER, outcome.content or SIMPLEST), settings=SEARCH)
    assert refused.content == {"count": 1, "sizes": ["s"]}


def test_non_form_has_no_strategy() -> None:
    schemas: list[Any] = [None, {"type": "object"}, {"type": "object", "properties": {"f": {}}}]
    for schema in schemas:
        for strategy in (answers, outcomes):
            with pytest.raises(ValueError, match="form"):
                strategy(schema)


def test_without_hypothesis_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "roundtrip.testing.strategies")
    with pytest.raises(ImportError, match=r"pip install 'mcp-roundtrip\[testing\]'"):
        importlib.import_module("roundtrip.testing.strategies")
