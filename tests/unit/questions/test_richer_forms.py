"""Richer questions: single values, titled choices and several of them, each way there and back."""

import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from mcp_types import ElicitRequest, ElicitResult
from mcp_types.methods import parse_server_request, serialize_server_result
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from roundtrip.machine.journal import Action
from roundtrip.questions.forms import AnswerInvalid, form_of
from roundtrip.questions.markers import Elicit
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.wire import question_of
from tests.kit.raised import raised


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


@dataclass
class Meal:
    dish: Annotated[str, Field(min_length=1, description="Anything.")]
    spicy: bool = False


class Trip(TypedDict, total=False):
    day: datetime.date
    size: Size


class Seat(BaseModel):
    row: Annotated[int, Field(ge=1, le=9)] = 3
    sizes: list[Size] = [Size.LARGE]
    note: str | None = None


def shown(schema: Any) -> Mapping[str, Any]:
    """Return the only field of a single value, without its title."""
    properties = form_of(schema).schema["properties"]
    assert list(properties) == ["value"]
    return {key: value for key, value in properties["value"].items() if key != "title"}


TITLES = {"s": "Small", "l": "Large"}
OPTIONS = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
DATE, TIME = datetime.date(2026, 7, 28), datetime.datetime(2026, 7, 28, 12, tzinfo=datetime.UTC)

VALUES: list[tuple[Any, Any, Any, Any]] = [
    (bool, {"type": "boolean"}, True, True),
    (int, {"type": "integer"}, 3, 3),
    (float, {"type": "number"}, 0.5, 0.5),
    (str, {"type": "string"}, "x", "x"),
    (datetime.date, {"type": "string", "format": "date"}, "2026-07-28", DATE),
    (datetime.datetime, {"type": "string", "format": "date-time"}, "2026-07-28T12:00:00Z", TIME),
    (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
    (Annotated[str, Field(max_length=2)], {"type": "string", "maxLength": 2}, "ab", "ab"),
    (Size, {"type": "string", "enum": ["s", "l"]}, "l", Size.LARGE),
    (Word, {"type": "string", "enum": ["yes", "no"]}, "no", Word.NO),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    (list[Size], {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}}, ["l"], [Size.LARGE]),
    (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}, [], []),
    (
        Annotated[list[Size], Field(min_length=1, max_length=2)],
        {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}, "minItems": 1, "maxItems": 2},
        ["s"],
        [Size.SMALL],
    ),
    (TITLES, {"type": "string", "oneOf": OPTIONS}, "l", "l"),
    ([TITLES], {"type": "array", "items": {"anyOf": OPTIONS}}, ["l", "s"], ["l", "s"]),
    (
        {7: "Seven", None: "None"},
        {"type": "string", "oneOf": [{"const": "7", "title": "Seven"}, {"const": "None", "title": "None"}]},
        "7",
        7,
    ),
    ([{7: "Seven"}], {"type": "array", "items": {"anyOf": [{"const": "7", "title": "Seven"}]}}, ["7"], [7]),
]


def test_a_single_value_is_a_form_of_one_field() -> None:
    """Shows F1, F2."""
    assert [shown(schema) for schema, *_ in VALUES] == [shape for _, shape, *_ in VALUES]
    assert [form_of(schema).schema["required"] for schema, *_ in VALUES] == [["value"]] * len(VALUES)


def test_its_answer_becomes_the_value_itself_and_is_restored_alike() -> None:
    wrong: list[Any] = []
    for schema, _, answer, value in VALUES:
        question = question_of(Elicit("?", schema))
        outcome, data = question.read(ElicitResult(action="accept", content={"value": answer}))
        # What stands in for an answer takes the same way.
        outcomes = (
            outcome,
            question.restore(Action.ACCEPT, data),
            question.restore(Action.ACCEPT, question.plain(value)),
        )
        if outcomes != (Outcome(value),) * 3 or type(outcome.value) is not type(value):
            wrong.append((schema, outcomes))
    assert wrong == []


def as_sent_and_as_written(schema: Any) -> tuple[Any, Any]:
    """Return a form as it is sent, and as the models of 2026-07-28 write it, which drop what they do not know."""
    request = question_of(Elicit("?", schema)).request()
    assert isinstance(request, ElicitRequest)
    sent = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    parse_server_request("elicitation/create", "2025-11-25", sent["params"])
    result = {"resultType": "input_required", "inputRequests": {"key": sent}}
    written = serialize_server_result("tools/call", "2026-07-28", result)
    # Of a form that is the title, and nothing of its fields.
    sent["params"]["requestedSchema"].pop("title", None)
    return sent, written["inputRequests"]["key"]


def test_sent_form_uses_types_known_to_both_eras() -> None:
    """Shows F1, F2, F3, F4."""
    forms = [as_sent_and_as_written(schema) for schema in [*(row[0] for row in VALUES), Meal, Trip, Seat]]
    assert [sent for sent, _ in forms] == [written for _, written in forms]


WRONG: list[tuple[Any, Any]] = [
    (datetime.date, {"value": "tomorrow"}),
    (Size, {"value": "SMALL"}),
    (list[Size], {"value": "s"}),
    (TITLES, {"value": "Small"}),
    (TITLES, {"value": ["s"]}),
    ([TITLES], {"value": ["s", "x"]}),
    ({1: "One"}, {"value": 1}),
    (str, {"other": "x"}),
    (Meal, {"dish": ""}),
    (Trip, {"day": "never"}),
]


def test_an_answer_that_does_not_fit_is_rejected() -> None:
    errors = [raised(form_of(schema).parse, content) for schema, content in WRONG]
    assert [error for error in errors if not isinstance(error, AnswerInvalid)] == []


def test_non_text_choices_travel_as_text_and_return_unchanged() -> None:
    """Shows F2."""
    mixed = form_of({2: "Two", 2.5: "Two and a half", True: "Yes"})
    assert [option["const"] for option in mixed.schema["properties"]["value"]["oneOf"]] == ["2", "2.5", "True"]
    assert [mixed.parse({"value": text}) for text in ("2", "2.5", "True")] == [2, 2.5, True]
    several = form_of([{Size.SMALL: "Small", DATE: "That day"}])
    assert several.parse({"value": [str(DATE)]}) == [DATE]
    assert several.plain([DATE, Size.SMALL]) == {"value": [str(DATE), str(Size.SMALL)]}


def test_equal_choices_make_equal_questions_and_changed_titles_differ() -> None:
    def pinned(schema: Any) -> bytes:
        return question_of(Elicit("?", schema)).schema

    assert pinned(dict(TITLES)) == pinned(TITLES)
    reordered = dict(reversed(TITLES.items()))
    assert len({pinned(TITLES), pinned(reordered), pinned({"s": "S", "l": "L"}), pinned([TITLES])}) == 4


ALIKE: list[tuple[Any, Any]] = [
    ({0: "no", 1: "yes"}, {False: "no", True: "yes"}),
    ({0: "no", 1: "yes"}, {0.0: "no", 1.0: "yes"}),
    ({0.0: "zero"}, {-0.0: "zero"}),
    ({Decimal("1.0"): "one"}, {Decimal("1.00"): "one"}),
]


@pytest.mark.parametrize("several", [False, True])
def test_equal_choices_of_other_types_have_forms_of_their_own(several: bool) -> None:
    def wrapped(value: Any) -> Any:
        return [value] if several else value

    mixed: list[Any] = []
    for choices in (each for one, other in ALIKE for each in (one, other, one)):
        form = form_of(wrapped(choices))
        for value in choices:
            sent = {"value": wrapped(str(value))}
            if repr(form.parse(sent)) != repr(wrapped(value)) or form.plain(wrapped(value)) != sent:
                mixed.append((choices, value))
    assert mixed == []
