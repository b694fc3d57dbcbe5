"""Reviews: forms that show a call's earlier answers, which the user may change."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from roundtrip.errors import BodyMistake
from roundtrip.machine.pins import digest
from roundtrip.questions.forms import AnswerInvalid, Form
from roundtrip.questions.markers import AnsweredBy


class Review(NamedTuple):
    """A review's question: its message, and the form and answer for each question name."""

    message: str
    parts: Mapping[str, tuple[Form, Mapping[str, Any]]]
    answered_by: AnsweredBy = "human"


class ReviewForm:
    """Several forms combined into one, with the earlier answers as defaults. The form's digest ignores the defaults."""

    def __init__(self, parts: Mapping[str, tuple[Form, Mapping[str, Any]]]) -> None:
        self._parts = parts
        properties: dict[str, Any] = {}
        required: list[str] = []
        for key, (form, content) in parts.items():
            for field, shape in form.schema["properties"].items():
                name = _name(key, field, form)
                if name in properties:
                    raise BodyMistake(f"a review cannot show two fields named {name!r}; rename one of the questions")
                title = key if form.single else f"{key}: {shape.get('title', field)}"
                properties[name] = {**shape, "title": title}
                if content.get(field) is not None:
                    properties[name]["default"] = content[field]
            # The user may leave out a field that already has an answer, and then the field keeps that answer.
            unanswered = [field for field in form.schema.get("required", ()) if content.get(field) is None]
            required += [_name(key, field, form) for field in unanswered]
        self.schema: Mapping[str, Any] = {"type": "object", "properties": properties}
        if required:
            self.schema = {**self.schema, "required": required}
        self.digest = digest(json.dumps([[key, form.digest.hex()] for key, (form, _) in parts.items()]))

    def parse(self, content: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
        """Return the content of each part after the user's changes.

        Raises:
            AnswerInvalid: An answer does not fit its form; the message names the question.
        """
        answers: dict[str, dict[str, Any]] = {}
        for key in self._parts:
            answer = self._answer_to(key, content or {})
            try:
                self._parts[key][0].parse(answer)
            except AnswerInvalid as error:
                raise AnswerInvalid(f"{key}: {error}") from error
            answers[key] = answer
        return answers

    def filled_in(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema for asking the client again, with the valid changes as defaults."""
        properties: dict[str, Any] = dict(self.schema["properties"])
        for key, (form, _) in self._parts.items():
            for field, value in form.valid_fields(self._answer_to(key, content)).items():
                name = _name(key, field, form)
                if name in content:
                    properties[name] = {**properties[name], "default": value}
        return {**self.schema, "properties": properties}

    def _answer_to(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of one part after the user's changes."""
        form, before = self._parts[key]
        names = {field: _name(key, field, form) for field in form.schema["properties"]}
        return {
            field: given.get(name, before.get(field))
            for field, name in names.items()
            if name in given or field in before
        }

    def plain(self, value: Any) -> Any:
        """Return the form content for a value; the reverse of `parse`."""
        return value


def _name(key: str, field: str, form: Form) -> str:
    return key if form.single else f"{key}.{field}"
