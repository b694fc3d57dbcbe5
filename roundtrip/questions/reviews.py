"""A review: one form that shows earlier answers of a call and lets the user change them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundtrip.machine.pins import digest
from roundtrip.questions.forms import AnswerInvalid, Form

__all__ = ["Review", "ReviewForm"]


@dataclass(frozen=True, slots=True)
class Review:
    """The question of a review: what the user reads, and the answers by the names of their questions."""

    message: str
    parts: Mapping[str, tuple[Form, Mapping[str, Any]]]


class ReviewForm:
    """Several forms as one, filled in. Its digest leaves out what they are filled in with."""

    def __init__(self, parts: Mapping[str, tuple[Form, Mapping[str, Any]]]) -> None:
        self._parts = parts
        properties: dict[str, Any] = {}
        required: list[str] = []
        for key, (form, content) in parts.items():
            for field, shape in form.schema["properties"].items():
                name = _name(key, field, form)
                title = key if form.single else f"{key}: {shape.get('title', field)}"
                properties[name] = {**shape, "title": title}
                if content.get(field) is not None:
                    properties[name]["default"] = content[field]
            # What has been answered may be left out: the user leaves it alone then.
            unanswered = [field for field in form.schema.get("required", ()) if content.get(field) is None]
            required += [_name(key, field, form) for field in unanswered]
        self.schema: Mapping[str, Any] = {"type": "object", "properties": properties}
        if required:
            self.schema = {**self.schema, "required": required}
        self.digest = digest(json.dumps([[key, form.digest.hex()] for key, (form, _) in parts.items()]))

    def parse(self, content: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
        """The content of each part's answer, as the user left it.

        Raises:
            AnswerInvalid: One of them does not fit its form; the reason names the question.
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
        """The schema as a client shows it again: what was changed validly stays changed."""
        properties: dict[str, Any] = dict(self.schema["properties"])
        for key, (form, _) in self._parts.items():
            for field, value in form.valid_fields(self._answer_to(key, content)).items():
                name = _name(key, field, form)
                if name in content:
                    properties[name] = {**properties[name], "default": value}
        return {**self.schema, "properties": properties}

    def _answer_to(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The content of one part's answer, as the user left it."""
        form, before = self._parts[key]
        names = {field: _name(key, field, form) for field in form.schema["properties"]}
        # A field that a client leaves out is one that its user left alone.
        return {
            field: given.get(name, before.get(field))
            for field, name in names.items()
            if name in given or field in before
        }

    def plain(self, value: Any) -> Any:
        """The content that would have given a value."""
        return value


def _name(key: str, field: str, form: Form) -> str:
    return key if form.single else f"{key}.{field}"
