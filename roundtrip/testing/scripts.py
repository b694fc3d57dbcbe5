"""Scripts: the answers of a scripted user."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    TextContent,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from roundtrip.testing.conversations import AskedQuestion

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "IGNORE",
    "LEAVE",
    "Answers",
    "AnswersBy",
    "Matcher",
    "MatcherT",
    "Replies",
    "Reply",
    "Script",
    "Silence",
    "UserAction",
    "fits",
    "is_sequence",
    "matcher_text",
    "response_to",
]


class UserAction(Enum):
    """Replies that carry no value."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class Silence(Enum):
    """Ways of not answering a question."""

    IGNORE = "ignore"
    LEAVE = "leave"


ACCEPT: Final = UserAction.ACCEPT
"""Agree to visit a page, or accept a form as it is."""
DECLINE: Final = UserAction.DECLINE
"""Decline the question."""
CANCEL: Final = UserAction.CANCEL
"""Cancel the question."""
IGNORE: Final = Silence.IGNORE
"""Go on without an answer. On the live era, the client responds with an error."""
LEAVE: Final = Silence.LEAVE
"""Leave the call waiting forever."""

Reply = (
    UserAction
    | Silence
    | ElicitResult
    | CreateMessageResult
    | ListRootsResult
    | BaseModel
    | Mapping[str, Any]
    | str
    | int
    | float
    | bool
    | None
)
"""An answer: the content of a form, the value of a form with one field, the text of a model, JSON data of a model's
answer or of roots, or an outcome."""

Matcher = str | re.Pattern[str] | Callable[[AskedQuestion], bool]
"""Selects questions: by name, by a pattern of the message, or by a function."""

# To a type checker, a mapping of names is not a mapping of all kinds of keys, and not every checker can match a literal
# against a union of the two.
MatcherT = TypeVar("MatcherT", str, Matcher)

AnswersBy: TypeAlias = Mapping[MatcherT, Reply | Sequence[Any]]
"""The type of `answers=`."""

Answers: TypeAlias = Mapping[Any, Reply | Sequence[Any]]
"""Replies by a question's name, by a pattern of its message, or by a function; a list is used up in order."""


def is_sequence(reply: object) -> bool:
    """Return True for replies that are used up in order."""
    return isinstance(reply, list | tuple)


class Replies(Protocol):
    """Answers the questions of a call."""

    def reply(self, question: AskedQuestion) -> InputResponse | Silence | None:
        """Return the answer to a question; None without one."""
        ...

    @property
    def unused(self) -> list[str]:
        """Return the answers that were not asked for."""
        ...

    @property
    def listed(self) -> bool:
        """Return True if the last answer came from a list, and so was meant for that one time."""
        ...


class Script:
    """Prepared answers, which notes the unused ones.

    Args:
        answers: The answers; a list has those of each round.
    """

    def __init__(self, answers: Answers | Sequence[Answers]) -> None:
        rounds = [(None, answers)] if isinstance(answers, Mapping) else enumerate(answers, 1)
        self._entries: list[tuple[int | None, Any, list[Reply] | Reply]] = [
            (number, matcher, list(cast("Sequence[Reply]", reply)) if is_sequence(reply) else cast("Reply", reply))
            for number, round_ in rounds
            for matcher, reply in round_.items()
        ]
        self._used: set[int] = set()
        self.listed = False

    def reply(self, question: AskedQuestion) -> InputResponse | Silence | None:
        """Return the answer to a question; None without one, or if a list is used up."""
        for place, (number, matcher, reply) in enumerate(self._entries):
            if number not in (None, question.round) or not fits(matcher, question):
                continue
            self.listed = isinstance(reply, list) or number is not None
            if isinstance(reply, list):
                if not reply:
                    continue
                given = reply.pop(0)
                if not reply:
                    self._used.add(place)
            else:
                given = reply
                self._used.add(place)
            return given if isinstance(given, Silence) else response_to(question, given)
        return None

    @property
    def unused(self) -> list[str]:
        """Return the answers that were not asked for."""
        return [
            matcher_text(matcher)
            + (f" ({len(reply)} left)" if isinstance(reply, list) else "")
            + (f" in round {number}" if number is not None else "")
            for place, (number, matcher, reply) in enumerate(self._entries)
            if place not in self._used
        ]


def fits(matcher: Any, question: AskedQuestion) -> bool:
    """Return True if a matcher selects a question."""
    if isinstance(matcher, str):
        return question.key == matcher
    if isinstance(matcher, re.Pattern):
        return cast("re.Pattern[str]", matcher).search(question.message) is not None
    return bool(matcher(question))


def matcher_text(matcher: Any) -> str:
    """Return the name of a matcher for messages."""
    if isinstance(matcher, re.Pattern):
        return f"/{cast('re.Pattern[str]', matcher).pattern}/"
    return repr(matcher) if isinstance(matcher, str) else getattr(matcher, "__name__", repr(matcher))


def response_to(question: AskedQuestion, reply: Reply) -> InputResponse:
    """Convert a reply to the response that the client sends."""
    if isinstance(reply, ElicitResult | CreateMessageResult | ListRootsResult):
        return reply
    if question.params is None:
        if not isinstance(reply, Mapping):
            raise TypeError("give roots with roots=, or as JSON data: {'roots': [{'uri': 'file:///films'}]}")
        return ListRootsResult.model_validate(reply)
    if isinstance(question.params, CreateMessageRequestParams):
        if isinstance(reply, Mapping):
            return CreateMessageResult.model_validate(reply)
        content = TextContent(type="text", text=reply if isinstance(reply, str) else str(reply))
        return CreateMessageResult(role="assistant", content=content, model="scripted")
    if isinstance(reply, UserAction):
        return ElicitResult(action=reply.value)
    plain: Any = to_jsonable_python(reply, by_alias=True)
    fields: list[str] = list((question.schema or {}).get("properties") or ())
    if isinstance(plain, dict):
        # If the form is known, a name that is not a field of it is a typo.
        unknown = [name for name in cast("dict[str, Any]", plain) if fields and name not in fields]
        if unknown:
            raise AssertionError(
                f"the answer to {question} has {', '.join(map(repr, unknown))}, and its form has only "
                f"{', '.join(map(repr, fields))}. To send it all the same, answer with an ElicitResult"
            )
        return ElicitResult(action="accept", content=cast("dict[str, Any]", plain))
    if len(fields) > 1:
        raise AssertionError(
            f"the answer to {question} is {plain!r}, and its form has several fields: {', '.join(map(repr, fields))}"
        )
    # The form of a single value has one field.
    return ElicitResult(action="accept", content={next(iter(fields), "value"): plain})
