"""What a scripted user answers to which question."""

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
    """What a user may do with a question besides answering it."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class Silence(Enum):
    """Ways of not answering a question."""

    IGNORE = "ignore"
    LEAVE = "leave"


ACCEPT: Final = UserAction.ACCEPT
"""Agree, as to go to a page, or to a form as it stands."""
DECLINE: Final = UserAction.DECLINE
"""Say no."""
CANCEL: Final = UserAction.CANCEL
"""Break the question off."""
IGNORE: Final = Silence.IGNORE
"""Go on without an answer to the question. On the live era, the client says that it has none."""
LEAVE: Final = Silence.LEAVE
"""Never come back to the call: it is left waiting."""

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
"""An answer: the content of a form, the value of a form with one field, the text of a model, the JSON form of a model's
answer or of roots, or an outcome."""

Matcher = str | re.Pattern[str] | Callable[[AskedQuestion], bool]
"""Which question a reply is for: by its name, by a pattern that its message holds, or by a function."""

# A mapping with names alone is not one with all kinds of keys to a type checker, and a union of the two is one that
# not every checker can hold a literal against.
MatcherT = TypeVar("MatcherT", str, Matcher)

AnswersBy: TypeAlias = Mapping[MatcherT, Reply | Sequence[Any]]
"""What functions take as `Answers`."""

Answers: TypeAlias = Mapping[Any, Reply | Sequence[Any]]
"""Replies by a question's name, by a pattern that its message holds, or by a function; a list is used up in order."""


def is_sequence(reply: object) -> bool:
    """Return True for what is used up in order: one after the other, each time."""
    return isinstance(reply, list | tuple)


class Replies(Protocol):
    """Who answers the questions of a call."""

    def reply(self, question: AskedQuestion) -> InputResponse | Silence | None:
        """The answer to a question; None where it should have one, and there is none."""
        ...

    @property
    def unused(self) -> list[str]:
        """What nobody has asked for."""
        ...

    @property
    def listed(self) -> bool:
        """Whether the last answer came from a list, of answers or of rounds, and so was meant for just that time."""
        ...


class Script:
    """Answers questions as it was told beforehand, and knows what it has not been asked.

    Args:
        answers: What to answer; a list has the answers to each round.
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
        """The answer to a question; None where there is none, or none any more."""
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
        """What nobody has asked for."""
        return [
            matcher_text(matcher)
            + (f" ({len(reply)} left)" if isinstance(reply, list) else "")
            + (f" in round {number}" if number is not None else "")
            for place, (number, matcher, reply) in enumerate(self._entries)
            if place not in self._used
        ]


def fits(matcher: Any, question: AskedQuestion) -> bool:
    """Return True if a matcher is for a question."""
    if isinstance(matcher, str):
        return question.key == matcher
    if isinstance(matcher, re.Pattern):
        return cast("re.Pattern[str]", matcher).search(question.message) is not None
    return bool(matcher(question))


def matcher_text(matcher: Any) -> str:
    """A matcher as messages name it."""
    if isinstance(matcher, re.Pattern):
        return f"/{cast('re.Pattern[str]', matcher).pattern}/"
    return repr(matcher) if isinstance(matcher, str) else getattr(matcher, "__name__", repr(matcher))


def response_to(question: AskedQuestion, reply: Reply) -> InputResponse:
    """A reply as the client sends it."""
    if isinstance(reply, ElicitResult | CreateMessageResult | ListRootsResult):
        return reply
    if question.params is None:
        if not isinstance(reply, Mapping):
            raise TypeError("roots are told with roots=, or by their JSON form: {'roots': [{'uri': 'file:///films'}]}")
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
        # Where the form is known, a name that is none of its fields' is a slip of the pen.
        unknown = [name for name in cast("dict[str, Any]", plain) if fields and name not in fields]
        if unknown:
            raise AssertionError(
                f"the answer to {question} has {', '.join(map(repr, unknown))}, which its form has not; it has "
                f"{', '.join(map(repr, fields))}. To send it all the same, answer with an ElicitResult"
            )
        return ElicitResult(action="accept", content=cast("dict[str, Any]", plain))
    if len(fields) > 1:
        raise AssertionError(
            f"the answer to {question} is {plain!r}, and its form has several fields: {', '.join(map(repr, fields))}"
        )
    # The form of a single value has one field.
    return ElicitResult(action="accept", content={next(iter(fields), "value"): plain})
