"""Answers to a server's questions. They come from a file (`--answers FILE`), or from the person at the terminal.

The file contains one object that maps question names to answers, or a list of objects. Each object in the list has an
`answer`. It can also have a `name` and a `message`, which is a regular expression. If an entry has no name and no
message, it answers the next question that no other entry matches. In the live era, names are not sent, so an entry that
has only a `name` also answers the next question. An entry for a confirmation, `confirm:TOOL`, never does: it answers
only the first question of a call of this tool, if the question has no fields.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

import anyio
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsResult,
    Root,
    TextContent,
)

from roundtrip.client.failures import CallFailed
from roundtrip.client.fields import check_content
from roundtrip.client.legs import asking
from roundtrip.client.person import PersonAtTerminal, show_page
from roundtrip.client.terminal import Terminal
from roundtrip.machine.journal import ACTIONS
from roundtrip.questions.fields import FieldInvalid
from roundtrip.text import printable
from roundtrip.tools.confirmation import consent_key
from roundtrip.untrusted import mapping_of

DECLINED: Final = ErrorData(code=INVALID_REQUEST, message="The user declined to answer")

_ENTRY_KEYS: Final = frozenset({"name", "message", "answer"})
_MAX_NAMED_FIELDS: Final = 10
_MAX_FIELD_CHARS: Final = 60
_APPROVAL_PREFIX: Final = "This waits for an approval by "
"""A page's message begins with this prefix if the page asks nothing, but shows who must approve."""
_MAX_MESSAGE_CHARS: Final = 80

_AskingParams = ElicitRequestFormParams | ElicitRequestURLParams | CreateMessageRequestParams
_Reply = ElicitResult | CreateMessageResult | None
"""An answer; None if a question for a model was declined."""


@dataclass(slots=True)
class _AnswerEntry:
    answer: Any
    name: str | None = None
    message: "re.Pattern[str] | None" = None
    is_used: bool = False


class AnswerFile:
    """The answers in one file. An entry that simply answers the next question is used only once."""

    def __init__(self, entries: list[_AnswerEntry]) -> None:
        self._entries = entries

    def find(self, params: _AskingParams, key: str | None, consent: str = "") -> tuple[_AnswerEntry | None, str]:
        """Return the entry that answers a question, and the question's description for error messages. In the live era,
        `key` is None, and `consent` is the name that a confirmation would have here.
        """
        if isinstance(params, CreateMessageRequestParams):
            blocks = [block for sent in reversed(params.messages) for block in sent.content_as_list]
            message = next((block.text for block in blocks if isinstance(block, TextContent)), "")
        else:
            message = params.message
        short = message if len(message) <= _MAX_MESSAGE_CHARS else message[:_MAX_MESSAGE_CHARS] + "..."
        name = f"the question {(short if key is None else key)!r}"
        wanted = key if key is not None else consent if _may_confirm(params) else ""
        named = [entry for entry in self._entries if entry.name == wanted]
        # An entry with another question's name does not answer this question, even if its message matches. The live era
        # has no names, but an answer in order must not confirm another tool.
        others = [one for one in self._entries if one.name is None or (key is None and not _confirms(one.name))]
        matching = [entry for entry in others if entry.message is not None and entry.message.search(message)]
        in_order = [entry for entry in others if entry.message is None and not entry.is_used]
        if key is None:
            named = [entry for entry in named if entry.message is None or entry.message.search(message)]
        entry = next(iter([*named, *matching, *in_order]), None)
        if entry is not None:
            entry.is_used = True
            if key is None and entry.name not in (None, wanted) and entry.message is None:
                name += f" (no names before 2026-07-28, so it got the file's next answer, {entry.name!r})"
        return entry, name


def _confirms(name: str) -> bool:
    return name.startswith(consent_key(""))


def _may_confirm(params: _AskingParams) -> bool:
    if isinstance(params, ElicitRequestFormParams):
        return not mapping_of(params.requested_schema.get("properties"))
    return isinstance(params, ElicitRequestURLParams) and params.message.startswith(_APPROVAL_PREFIX)


NO_ANSWERS: Final = AnswerFile([])
_EXAMPLE: Final = 'an answer file maps question names to answers: {"row": "back", "seats": 2}'


def read_answers(file: str) -> AnswerFile:
    """Read answers from a file, or from standard input (`-`).

    Raises:
        CallFailed: The file cannot be read, or its content is invalid.
    """
    shown = "standard input" if file == "-" else repr(file)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise CallFailed(f"cannot read {shown}: {error.strerror or error}; {_EXAMPLE}") from error
    except ValueError as error:
        raise CallFailed(f"the answers in {shown} are not JSON: {error}; {_EXAMPLE}") from error
    if isinstance(data, dict):
        return AnswerFile([_AnswerEntry(answer, name) for name, answer in cast("dict[str, Any]", data).items()])
    if isinstance(data, list):
        return AnswerFile([_entry(entry, shown, n) for n, entry in enumerate(cast("list[Any]", data), 1)])
    raise CallFailed(f"the answers in {shown} must map question names to answers, or be a list of objects")


def _entry(data: Any, file: str, number: int) -> _AnswerEntry:
    where = f"entry {number} of the answers in {file}"
    parts = mapping_of(data)
    if "answer" not in parts or not _ENTRY_KEYS.issuperset(parts):
        raise CallFailed(f"{where} must be an object with 'answer' and, optionally, 'name' or 'message'")
    name, message = parts.get("name"), parts.get("message")
    if not isinstance(name, str | None) or not isinstance(message, str | None):
        raise CallFailed(f"{where}: 'name' and 'message' must be text")
    try:
        return _AnswerEntry(parts["answer"], name, re.compile(message) if message is not None else None)
    except re.error as error:
        raise CallFailed(f"{where}: 'message' must be a regular expression: {error}") from error


class Answerer:
    """The answerer for one call. It answers one question at a time, even if the server asks several at once."""

    def __init__(self, terminal: Terminal, answers: AnswerFile, roots: Sequence[Root], tool: str | None) -> None:
        self._terminal = terminal
        self._consent = consent_key(tool or "")
        """The name of the tool's confirmation, which can only be the first question."""
        self._person = PersonAtTerminal(terminal)
        self._answers = answers
        self._roots = list(roots)
        self._lock = anyio.Lock()
        self._is_waiting_for_approval = False
        self.declined = False
        """True once a question has been declined or cancelled."""

    async def answer(self, request: InputRequest, *, key: str | None = None) -> InputResponse | ErrorData:
        """Answer one question. If a question for a model is declined, return an error.

        Raises:
            CallFailed: There is no answer to the question, or the answer in the file does not fit.
        """
        params = asking(request)
        async with self._lock:
            if params is None:
                return ListRootsResult(roots=self._roots)
            entry, name = self._answers.find(params, key, self._consent)
            self._consent = ""
            if entry is None:
                answer = await self._ask_person(params, key, name)
            else:
                if isinstance(params, ElicitRequestURLParams):
                    show_page(self._terminal, params)
                answer = _response_for(params, entry.answer, name)
            self.declined |= answer is None or (isinstance(answer, ElicitResult) and answer.action != "accept")
            return DECLINED if answer is None else answer

    async def _ask_person(self, params: _AskingParams, key: str | None, name: str) -> _Reply:
        if not self._terminal.has_person:
            if isinstance(params, ElicitRequestURLParams) and params.message.startswith(_APPROVAL_PREFIX):
                return self._await_approval(params)
            in_order = "" if key is not None else " (in the live era, answers are used in order, without names)"
            raise CallFailed(
                f"there is no answer to {name}{in_order}; run the command at a terminal, or add an answer to the "
                "--answers file"
            )
        self._terminal.say()
        self._terminal.say(f"The server asks{f' ({printable(key)})' if key is not None else ''}:", style="cyan")
        match params:
            case ElicitRequestURLParams():
                return await self._person.visit(params)
            case ElicitRequestFormParams():
                return await self._person.fill_in(params)
            case CreateMessageRequestParams():
                return await self._person.answer_for_model(params)

    def _await_approval(self, page: ElicitRequestURLParams) -> ElicitResult:
        """Accept a page that shows who must approve, but do not open it. The page does not ask the user anything."""
        if not self._is_waiting_for_approval:
            self._terminal.say(f"{printable(page.message)} The server has stored the call until the approver decides.")
            self._terminal.say(
                "If this takes longer, the result contains a handle. Call the tool continue_call with it to get the "
                "final result."
            )
        self._is_waiting_for_approval = True
        return ElicitResult(action="accept")


def answer_from(answers: AnswerFile, request: InputRequest, key: str) -> InputResponse | None:
    """Return the file's answer to a retry-era question; None if the file has no answer.

    Raises:
        CallFailed: The answer in the file does not fit.
    """
    params = asking(request)
    if params is None:
        return None
    entry, name = answers.find(params, key)
    return None if entry is None else _response_for(params, entry.answer, name)


def kind_of_question(request: InputRequest) -> str:
    """Return one word that names the question's kind."""
    if isinstance(request, ElicitRequest):
        return "page" if isinstance(request.params, ElicitRequestURLParams) else "form"
    return "model" if isinstance(request, CreateMessageRequest) else "roots"


def _response_for(params: _AskingParams, answer: Any, name: str) -> _Reply:
    if isinstance(params, CreateMessageRequestParams):
        return _model_response(answer, name)
    if isinstance(params, ElicitRequestFormParams) and (answer == "accept" or not _is_action(answer)):
        return _form_response(params, answer, name)
    if not _is_action(answer):
        raise CallFailed(f"the answer to {name}, which is a page, must be 'accept', 'decline' or 'cancel'")
    return ElicitResult.model_validate({"action": answer})


def _form_response(form: ElicitRequestFormParams, answer: Any, name: str) -> ElicitResult:
    """Convert an answer to a form. It can be the content, a single value, or `accept`, which uses the defaults."""
    names = list(mapping_of(form.requested_schema.get("properties")))
    if names == ["value"] and not isinstance(answer, dict) and answer != "accept":
        answer = {"value": answer}
    if not isinstance(answer, dict) and answer != "accept":
        fields = ", ".join(repr(name[:_MAX_FIELD_CHARS]) for name in names[:_MAX_NAMED_FIELDS]) or "none"
        raise CallFailed(
            f"the answer to {name} must be an object with the form's fields ({fields}), or 'accept', 'decline' or "
            "'cancel'"
        )
    try:
        content = check_content(form.requested_schema, {} if answer == "accept" else cast("dict[str, Any]", answer))
    except FieldInvalid as invalid:
        raise CallFailed(f"the answer to {name} does not fit: {invalid}") from invalid
    return ElicitResult(action="accept", content=content)


def _model_response(answer: Any, name: str) -> CreateMessageResult | None:
    """Convert a model's answer, which has the form `{"text": ...}`. Return None for `decline` and `cancel`."""
    if _is_action(answer) and answer != "accept":
        return None
    text = mapping_of(answer).get("text")
    if not isinstance(text, str):
        raise CallFailed(f'the answer to {name} must be {{"text": "..."}} or \'decline\', because a model is asked')
    content = TextContent(text=text)
    return CreateMessageResult(role="assistant", content=content, model="a script", stop_reason="endTurn")


def _is_action(answer: Any) -> TypeGuard[str]:
    return isinstance(answer, str) and answer in ACTIONS
