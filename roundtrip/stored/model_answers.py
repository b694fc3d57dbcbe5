"""Read the answers that a model gives to the questions of a call which it may answer.

Which ones these are was stored when they were asked. Nothing that a client sends adds to them.
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
"""The field of a form for a single value."""
_MAX_SHOWN_CHARS: Final = 80


class AnswersRefused(Exception):
    """A question is not one that a model may answer now."""


class AnswersInvalid(Exception):
    """An answer does not fit its question; the message names the question, the field and the rule."""


def names_for_model(end: Suspended) -> frozenset[str]:
    """Return the names of the questions of a leg that a model may answer."""
    named = end.questions.items() if end.channel == "model" else ()
    return frozenset(name for name, waiting in named if waiting.question.is_for_anyone)


def answer_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an answer to a form: of a single value, that of the value."""
    return schema["properties"][_VALUE] if _is_single(schema) else schema


def read_answers(content: CallContent, answers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return answers of a model as results of `elicitation/create`, by the keys of their questions.

    An answer is the value for a form of a single value, an object of the fields for other forms, or None to decline.
    Models write a single value in an object, too, so that is read as well: no field of a form holds an object.

    Args:
        content: The call.
        answers: The answers by the keys of their questions, as the client sent them.

    Raises:
        AnswersRefused: One of the questions is not open, or not for a model.
        AnswersInvalid: An answer does not fit its form. Then none of them counts.
    """
    if not answers or any(key not in content.asked.for_model or key not in content.asked.questions for key in answers):
        raise AnswersRefused
    return {key: read_answer(key, content.asked.questions[key]["params"], answer) for key, answer in answers.items()}


def _is_single(schema: Mapping[str, Any]) -> bool:
    return list(schema.get("properties", ())) == [_VALUE]


def read_answer(key: str, params: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Return an answer to a form as a result of `elicitation/create`; see `read_answers`.

    Args:
        key: The key of the question.
        params: The parameters of its request.
        answer: The answer.

    Raises:
        AnswersInvalid: It does not fit the form.
    """
    if answer is None:
        return {"action": "decline"}
    schema = params["requestedSchema"]
    if isinstance(answer, dict):
        values = cast("dict[str, Any]", answer)
    elif _is_single(schema):
        values = {_VALUE: answer}
    else:
        raise AnswersInvalid(f"the answer to {_shown(key)} must be an object of its fields, or null to decline")
    fields = {field.name: field for field in fields_of(schema)}
    if wrong := [*_mistakes(fields, values)]:
        raise AnswersInvalid("; ".join(f"{_shown(key)}, {text}" for text in wrong))
    return {"action": "accept", "content": {name: value for name, value in values.items() if value is not None}}


def _mistakes(fields: Mapping[str, FormField], values: Mapping[str, Any]) -> Iterator[str]:
    for name in values:
        if name not in fields:
            yield f"field {_shown(name)}: there is no such field"
    for name, field in fields.items():
        # Models write null for an optional field that they leave out.
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
