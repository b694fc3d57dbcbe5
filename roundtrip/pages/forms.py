"""Question forms: they show a round's open questions, and read the answers that a browser sends.

All questions of a round are on one page, so that the reader sees all of them before sending an answer. A page with one
question has two buttons: one answers the question, the other declines it. A page with several questions has a choice
for each question.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from roundtrip.pages.controls import LEFT_OUT, Control, FieldView, Posted, read_field, view_of_field
from roundtrip.questions.fields import fields_of
from roundtrip.text import printable
from roundtrip.untrusted import mapping_of

if TYPE_CHECKING:
    from jsonschema import ValidationError

OpenQuestions = Mapping[str, Mapping[str, Any]]
"""Wire requests with `method` and `params`, by question key."""

TOKEN: Final = "token"  # noqa: S105 - the name of a control
DECISION: Final = "decision"
"""The name that both buttons share. Their values are `answer` and `decline`."""

_MAX_HEADING_CHARS: Final = 140
"""The longest first line that becomes a heading."""
_LINK_SCHEMES: Final = ("http", "https")
_HOST_PATTERN: Final = re.compile(r"[a-z0-9._:-]+", re.ASCII)
"""Hosts that every browser reads exactly as they are written."""
_RULES: Final = {
    "pattern": "match the pattern",
    "exclusiveMinimum": "be more than",
    "exclusiveMaximum": "be less than",
    "multipleOf": "be a multiple of",
}
"""For each schema rule, the words that precede its limit in an error message."""
_MAX_PAIRS: Final = 10_000
"""The most name-value pairs that one body may have. A page sends one pair for each field and each chosen option."""


class PostUnreadable(Exception):
    """The body was not sent by a page with this form. No browser sends such a body by itself."""


class QuestionKind(Enum):
    """The kinds of questions on a page. Templates use these names."""

    FORM = "form"
    CONFIRMATION = "confirmation"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class FormMistake:
    """Line in the summary of mistakes, with the id of the element that the line links to."""

    target: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class QuestionView:
    """One question on a page."""

    id: str
    key: str
    kind: QuestionKind
    heading: str
    text: str = ""
    """The rest of the message, below the heading."""
    fields: tuple[FieldView, ...] = ()
    url: str | None = None
    """The link's address; None if the page must not link to it."""
    shown_url: str = ""
    host: str = ""
    choice: str = ""
    """On a page with several questions: `yes`, `no`, or an empty text if the reader has not chosen."""
    error: str | None = None

    @property
    def choice_name(self) -> str:
        """Return the name of the control that decides whether this question is answered."""
        return f"{self.id}-choice"


@dataclass(frozen=True, slots=True)
class PageForm:
    """The questions on a page, in order."""

    questions: tuple[QuestionView, ...]

    @property
    def is_single(self) -> bool:
        """Return True if the page has only one question, so that its buttons answer that question."""
        return len(self.questions) == 1

    @property
    def mistakes(self) -> Sequence[FormMistake]:
        """Return all mistakes, in page order."""
        found: list[FormMistake] = []
        for question in self.questions:
            if question.error is not None:
                found.append(FormMistake(f"{question.id}-choice-yes", question.heading, question.error))
            found += [
                FormMistake(view.target, view.label, view.error) for view in question.fields if view.error is not None
            ]
        return found

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield each control's name, and whether the browser may send the name several times."""
        yield from ((TOKEN, False), (DECISION, False))
        for question in self.questions:
            if not self.is_single:
                yield question.choice_name, False
            for view in question.fields:
                yield from ((name, view.control is Control.CHECKBOXES) for name in view.names)


def form_of_questions(questions: OpenQuestions) -> PageForm:
    """Return the form for a round's open questions, filled in with their defaults.

    Raises:
        ValueError: A request is not a question for the user, so a page cannot show it.
    """
    return PageForm(
        tuple(_question_view(f"q{place}", key, request) for place, (key, request) in enumerate(questions.items()))
    )


def parse_body(body: bytes) -> Posted:
    """Return the texts in an `application/x-www-form-urlencoded` body.

    Raises:
        PostUnreadable: The body is not URL-encoded UTF-8.
    """
    try:
        text = body.decode("ascii")
        return parse_qs(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MAX_PAIRS)
    except ValueError as error:
        raise PostUnreadable("the body must be a UTF-8 form") from error


def read_form(questions: OpenQuestions, posted: Posted) -> tuple[PageForm, dict[str, dict[str, Any]] | None]:
    """Return the form as the reader filled it in, and the answers by question key.

    If the reader made mistakes, the form shows them, and the answers are None.

    Raises:
        PostUnreadable: The texts are incomplete, or do not belong to this form.
    """
    form = form_of_questions(questions)
    _check_names(form, posted)
    match posted.get(DECISION):
        case ["decline"]:
            return form, {question.key: {"action": "decline"} for question in form.questions}
        case ["answer"]:
            pass
        case _:
            raise PostUnreadable("the body must say which button was pressed")
    read = [_read_question(question, questions[question.key], posted, form.is_single) for question in form.questions]
    form = PageForm(tuple(view for view, _ in read))
    return form, None if form.mistakes else {view.key: answer for view, answer in read}


def _check_names(form: PageForm, posted: Posted) -> None:
    known = dict(form.names())
    for name, texts in posted.items():
        if name not in known:
            raise PostUnreadable("the body must not have fields that are not in the form")
        if len(texts) > 1 and not known[name]:
            raise PostUnreadable("the body must not have a field twice")


# Requests to views


def _question_view(id: str, key: str, request: Mapping[str, Any]) -> QuestionView:
    if request.get("method") != "elicitation/create":
        raise ValueError(
            f"question {key!r}: a page can show only questions that a user answers, got {request.get('method')!r}"
        )
    params = mapping_of(request.get("params"))
    heading, text = _parts_of(str(params.get("message", "")))
    if params.get("mode") == "url":
        url = str(params.get("url", ""))
        host = _host_of(url)
        return QuestionView(
            id, key, QuestionKind.LINK, heading, text, url=url if host else None, shown_url=printable(url), host=host
        )
    fields = fields_of(mapping_of(params.get("requestedSchema")))
    views = tuple(view_of_field(f"{id}-f{place}", one, is_only=len(fields) == 1) for place, one in enumerate(fields))
    kind = QuestionKind.FORM if views else QuestionKind.CONFIRMATION
    return QuestionView(id, key, kind, heading, text, views)


def _parts_of(message: str) -> tuple[str, str]:
    """Split a message into a heading and the rest. The heading is the first line."""
    shown = printable(message.strip(), keep_newlines=True)
    first, _, rest = shown.partition("\n")
    if not shown or len(first) > _MAX_HEADING_CHARS:
        return "A question for you", shown
    return first, rest.strip("\n")


def _host_of(url: str) -> str:
    """Return a web address's host in ASCII, without look-alike letters; an empty text for other addresses."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme.lower() in _LINK_SCHEMES and parts.hostname and url.isprintable() and "\\" not in url:
            host = parts.hostname.encode("idna").decode("ascii").lower()
            return host if _HOST_PATTERN.fullmatch(host) else ""
    return ""


# Conversion from form texts to answers


def _read_question(
    question: QuestionView, request: Mapping[str, Any], posted: Posted, is_single: bool
) -> tuple[QuestionView, dict[str, Any]]:
    """Return a question as the reader filled it in, and its answer as a result of `elicitation/create`."""
    choice = "yes" if is_single else "".join(posted.get(question.choice_name, ()))
    read = [read_field(view, posted) for view in question.fields]
    filled = replace(question, choice=choice, fields=tuple(view for view, _ in read))
    if choice == "no":
        # If the reader declined a question, keep the texts in its fields, but report no mistakes in them.
        fields = tuple(replace(view, error=None) for view in filled.fields)
        return replace(filled, fields=fields), {"action": "decline"}
    if question.kind is not QuestionKind.FORM:
        if choice != "yes":
            filled = replace(filled, error="Choose one.")
        accepted: dict[str, Any] = {"action": "accept"}
        if question.kind is QuestionKind.CONFIRMATION:
            accepted["content"] = {}
        return filled, accepted
    content = {view.field.name: value for view, value in read if value is not LEFT_OUT}
    if all(view.error is None for view in filled.fields):
        schema = mapping_of(mapping_of(request.get("params")).get("requestedSchema"))
        filled = _with_schema_errors(filled, schema, content)
    return filled, {"action": "accept", "content": content}


def _with_schema_errors(question: QuestionView, schema: Mapping[str, Any], content: dict[str, Any]) -> QuestionView:
    """Return a question with an error for each schema rule that its content breaks.

    Form controls already check the few rules that MCP forms allow. Other schemas have more rules.
    """
    found: dict[str, str] = {}
    for error in _errors_of(schema, content):
        # If a rule applies to several fields at once, its error names no field. Only the asking server checks such a
        # rule.
        if error.absolute_path:
            found.setdefault(str(error.absolute_path[0]), _words_of_error(error))
    fields = tuple(replace(view, error=found.get(view.field.name)) for view in question.fields)
    return replace(question, fields=fields)


def _errors_of(schema: Mapping[str, Any], content: dict[str, Any]) -> "list[ValidationError]":
    # Imported on use, because only submitted answers need jsonschema.
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    plain = dict(schema)
    try:
        Draft202012Validator.check_schema(plain)
        # The empty registry keeps jsonschema from fetching remote references. Formats are not checked again: each field
        # has already checked its own.
        validator = Draft202012Validator(plain, registry=Registry[Any]())
        errors = cast("Iterator[ValidationError]", validator.iter_errors(content))  # pyright: ignore[reportUnknownMemberType]
        return list(errors)
    except (SchemaError, Unresolvable, RecursionError, OverflowError, re.error):
        # The asking server still checks each answer against the author's type.
        return []


def _words_of_error(error: "ValidationError") -> str:
    limit = printable(str(cast("object", error.validator_value)))
    rule = _RULES.get(str(error.validator))
    return f"It must {rule} {limit}." if rule is not None else "It is not a valid answer to this question."
