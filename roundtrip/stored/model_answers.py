"""A model's answers to the questions of a call.

When a call asks questions, it stores which of them a model may answer. A client cannot add to this list later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.questions.fields import FieldInvalid, FormField, fields_of
from roundtrip.stored.content import CallContent
from roundtrip.text import quoted

if TYPE_CHECKING:
    from roundtrip.engine.leg import Suspended

_VALUE: Final = "value"
"""The name of the only field in a form that asks for a single value."""
_MAX_SHOWN_CHARS: Final = 80


class AnswersRefused(Exception):
    """Error for an answer to a question that a model may not answer now."""


class AnswersInvalid(Exception):
    """Error for an answer that does not fit its question. The message names the question, the field and the rule."""


def names_for_model(end: Suspended) -> frozenset[str]:
    """Return the names of a leg's questions that a model may answer."""
    named = end.questions.items() if end.channel == "model" else ()
    return frozenset(name for name, waiting in named if waiting.question.is_for_anyone)


def answer_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema for an answer to a form. If the form asks for a single value, return that value's schema."""
    return schema["properties"][_VALUE] if _is_single(schema) else schema


def read_answers(content: CallContent, answers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a model's answers as `elicitation/create` results, by wire key.

    An answer of None declines. For a form with a single value, the answer is the value itself, and for other forms, it
    is an object. Models sometimes wrap a single value in an object, and such an object is accepted. This is not
    ambiguous, because no form field can contain an object.

    Args:
        content: The call's content.
        answers: The answers that the client sent, by wire key.

    Raises:
        AnswersRefused: A question is not open, or a model may not answer it.
        AnswersInvalid: An answer does not fit its form. All answers are then rejected.
    """
    if not answers or any(key not in content.asked.for_model or key not in content.asked.questions for key in answers):
        raise AnswersRefused
    return {key: read_answer(key, content.asked.questions[key]["params"], answer) for key, answer in answers.items()}


def _is_single(schema: Mapping[str, Any]) -> bool:
    return list(schema.get("properties", ())) == [_VALUE]


def read_answer(key: str, params: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Return an answer to a form as an `elicitation/create` result; see `read_answers`.

    Args:
        key: The question's wire key.
        params: The parameters of the question's request.
        answer: The answer.

    Raises:
        AnswersInvalid: The answer does not fit the form.
    """
    if answer is None:
        return {"action": "decline"}
    schema = params["requestedSchema"]
    if isinstance(answer, dict):
        values = cast("dict[str, Any]", answer)
    elif _is_single(schema):
        values = {_VALUE: answer}
    else:
        raise AnswersInvalid(f"the answer to {_shown(key)} must be an object with the form fields, or null if declined")
    fields = {field.name: field for field in fields_of(schema)}
    if wrong := [*_mistakes(fields, values)]:
        raise AnswersInvalid("; ".join(f"{_shown(key)}, {text}" for text in wrong))
    return {"action": "accept", "content": {name: value for name, value in values.items() if value is not None}}


def _mistakes(fields: Mapping[str, FormField], values: Mapping[str, Any]) -> Iterator[str]:
    for name in values:
        if name not in fields:
            yield f"field {_shown(name)}: there is no such field"
    for name, field in fields.items():
        # Instead of leaving out an optional field, models often send null for it.
        value = values.get(name)
        try:
            if value is not None:
                field.check(value)
            elif field.required:
                raise FieldInvalid("it is required")
        except FieldInvalid as error:
            yield f"field {_shown(name)}: {error}"


def _shown(name: str) -> str:
    return quoted(name if len(name) <= _MAX_SHOWN_CHARS else f"{name[:_MAX_SHOWN_CHARS]}...")
