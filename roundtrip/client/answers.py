"""Answers that were written down before, for scripts: `--answers FILE`.

The file holds either one object, with an answer per question key, or a list of objects with `answer` and, optionally,
the `key` or the `message` (a regular expression) of the questions it is for. An entry with neither is for the next
question that no other entry is for. Keys are not on the wire of the live era: there an entry that has one and no
`message` is taken in order too.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from mcp_types import (
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)

from roundtrip.client.endings import CallFailed
from roundtrip.client.fields import FieldInvalid
from roundtrip.client.forms import check_content

__all__ = ["NO_ANSWERS", "AnswerFile", "answered_form", "answered_page", "answered_request", "read_answers"]

_ACTIONS: Final = ("accept", "decline", "cancel")
_MOST_FIELDS: Final = 10
_LONGEST_FIELD: Final = 60
_ENTRY: Final = frozenset({"key", "message", "answer"})


@dataclass(slots=True)
class _AnswerEntry:
    answer: Any
    key: str | None = None
    message: "re.Pattern[str] | None" = None
    used: bool = False


class AnswerFile:
    """The answers of one file; those that are given in order are given once."""

    def __init__(self, entries: list[_AnswerEntry]) -> None:
        self._entries = entries

    def find(self, key: str | None, message: str) -> tuple[bool, Any]:
        """Whether there is an answer to a question, and which; without a key on the live era."""
        for entry in self._entries:
            if entry.key is not None and entry.key == key:
                return True, entry.answer
        for entry in self._entries:
            # An entry with a key that was not this question's is not for it, whatever its message says.
            if entry.message is not None and None in (key, entry.key) and entry.message.search(message):
                return True, entry.answer
        for entry in self._entries:
            if not entry.used and entry.message is None and None in (key, entry.key):
                entry.used = True
                return True, entry.answer
        return False, None


NO_ANSWERS: Final = AnswerFile([])


def read_answers(file: str) -> AnswerFile:
    """The answers of a file, or of standard input (`-`).

    Raises:
        CallFailed: It cannot be read, or is no such file.
    """
    shown = "standard input" if file == "-" else repr(file)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        written = json.loads(text)
    except OSError as error:
        raise CallFailed(f"cannot read {shown}: {error.strerror or error}") from error
    except ValueError as error:
        raise CallFailed(f"the answers in {shown} are not JSON: {error}") from error
    if isinstance(written, dict):
        return AnswerFile([_AnswerEntry(answer, key) for key, answer in cast("dict[str, Any]", written).items()])
    if isinstance(written, list):
        return AnswerFile([_entry(entry, shown, n) for n, entry in enumerate(cast("list[Any]", written), 1)])
    raise CallFailed(f"the answers in {shown} have to be an object (an answer per question key) or a list of objects")


def _entry(written: Any, file: str, number: int) -> _AnswerEntry:
    where = f"entry {number} of the answers in {file}"
    if (
        not isinstance(written, dict)
        or "answer" not in written
        or not _ENTRY.issuperset(cast("dict[str, Any]", written))
    ):
        raise CallFailed(f"{where} has to be an object with 'answer' and, optionally, 'key' or 'message'")
    parts = cast("dict[str, Any]", written)
    key, message = parts.get("key"), parts.get("message")
    if not isinstance(key, str | None) or not isinstance(message, str | None):
        raise CallFailed(f"{where}: 'key' and 'message' have to be text")
    try:
        return _AnswerEntry(parts["answer"], key, re.compile(message) if message is not None else None)
    except re.error as error:
        raise CallFailed(f"{where}: 'message' is no regular expression: {error}") from error


def answered_form(form: ElicitRequestFormParams, answer: Any, name: str) -> ElicitResult:
    """The answer to a form: its content as an object, or `accept` (with the defaults), `decline` or `cancel`.

    Raises:
        CallFailed: It does not fit the form.
    """
    if isinstance(answer, str) and answer in _ACTIONS and answer != "accept":
        return ElicitResult.model_validate({"action": answer})
    if not isinstance(answer, dict) and answer != "accept":
        raise CallFailed(
            f"the answer to {name} has to be an object with the form's fields ({_fields_of(form)}), or 'accept', "
            "'decline' or 'cancel'"
        )
    try:
        content = check_content(form.requested_schema, {} if answer == "accept" else cast("dict[str, Any]", answer))
    except FieldInvalid as invalid:
        raise CallFailed(f"the answer to {name} does not fit: {invalid}") from invalid
    return ElicitResult(action="accept", content=content)


def _fields_of(form: ElicitRequestFormParams) -> str:
    properties: object = form.requested_schema.get("properties")
    names = list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else []
    return ", ".join(repr(name[:_LONGEST_FIELD]) for name in names[:_MOST_FIELDS]) or "it has none"


def answered_page(page: ElicitRequestURLParams, answer: Any, name: str) -> ElicitResult:
    """The answer to a page: `accept` (to go there), `decline` or `cancel`.

    Raises:
        CallFailed: It is something else.
    """
    if answer not in _ACTIONS:
        raise CallFailed(f"the answer to {name}, a page, has to be 'accept', 'decline' or 'cancel'")
    return ElicitResult.model_validate({"action": answer})


def answered_request(answer: Any, name: str) -> CreateMessageResult | None:
    """What the model says, given as `{"text": …}`; None for `decline` and `cancel`.

    Raises:
        CallFailed: It is something else.
    """
    if answer in ("decline", "cancel"):
        return None
    text: Any = cast("dict[str, Any]", answer).get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise CallFailed(f'the answer to {name}, for a model, has to be {{"text": "..."}} or \'decline\'')
    return CreateMessageResult(
        role="assistant", content=TextContent(text=text), model="a script", stop_reason="endTurn"
    )
