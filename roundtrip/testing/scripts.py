"""A scripted user's prepared answers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

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


class UserAction(Enum):
    """Replies that have no value."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class Silence(Enum):
    """Ways to leave a question unanswered."""

    IGNORE = "ignore"
    LEAVE = "leave"


ACCEPT: Final = UserAction.ACCEPT
"""Agree to visit a page, or accept a form unchanged."""
DECLINE: Final = UserAction.DECLINE
"""Decline the question."""
CANCEL: Final = UserAction.CANCEL
"""Cancel the question."""
IGNORE: Final = Silence.IGNORE
"""Continue without an answer. In the live era, the client responds with an error instead."""
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
"""An answer: form content, the value for a form with one field, a model's text, an outcome, or JSON data. JSON data can
answer for a model or for roots.
"""

Matcher = str | re.Pattern[str] | Callable[[AskedQuestion], bool]
"""A way to select questions: by name, by a pattern for the message, or with a function."""

# `Mapping` is invariant in its key, so `Mapping[str, ...]` is not a `Mapping[Matcher, ...]`. Some type checkers cannot
# match a dict literal against a union of the two.
MatcherT = TypeVar("MatcherT", str, Matcher)

ValueT = TypeVar("ValueT")

AnswersBy: TypeAlias = Mapping[MatcherT, Reply | Sequence[Any]]
"""The type of `answers=`."""

Answers: TypeAlias = Mapping[Any, Reply | Sequence[Any]]
"""Replies by question name, message pattern or function. The replies in a list are used in order, each of them once."""


@dataclass(slots=True)
class PreparedValues(Generic[ValueT]):
    """Values for the questions that a matcher selects. All questions get the same value, or each gets the next value in
    a list.
    """

    matcher: Any
    remaining: list[ValueT]
    in_order: bool
    round: int | None = None
    """The round that these values are for; None if they are for all rounds."""
    take_count: int = 0
    """How many values have been taken."""

    @property
    def is_used(self) -> bool:
        """Return True if the single value was taken, or if every value in the list was taken."""
        return self.take_count > 0 and not (self.in_order and self.remaining)

    @property
    def is_single_use(self) -> bool:
        """Return True if each value can be used for only one question."""
        return self.in_order or self.round is not None

    def fits(self, question: AskedQuestion) -> bool:
        """Return True if there is a value left for this question."""
        if not self.remaining or self.round not in (None, question.round):
            return False
        matcher: Any = self.matcher
        if isinstance(matcher, str):
            return question.name == matcher
        if isinstance(matcher, re.Pattern):
            return cast("re.Pattern[str]", matcher).search(question.message) is not None
        return bool(matcher(question))

    def take(self) -> ValueT:
        """Return the next value."""
        self.take_count += 1
        return self.remaining.pop(0) if self.in_order else self.remaining[0]

    def __str__(self) -> str:
        matcher: object = self.matcher
        if isinstance(matcher, re.Pattern):
            return f"/{cast('re.Pattern[str]', matcher).pattern}/"
        return repr(matcher) if isinstance(matcher, str) else getattr(matcher, "__name__", repr(matcher))


def prepare_values(values: Mapping[Any, Any], *, round: int | None = None) -> list[PreparedValues[Any]]:
    """Return the prepared values for a mapping from matchers to values. The values in a list or tuple are used in
    order.
    """
    return [
        PreparedValues(matcher, list(cast("Sequence[Any]", value)), True, round)
        if isinstance(value, list | tuple)
        else PreparedValues(matcher, [value], False, round)
        for matcher, value in values.items()
    ]


class Script:
    """Prepared answers. The script keeps track of unused answers.

    Args:
        answers: The answers, or a list with the answers for each round.
    """

    def __init__(self, answers: Answers | Sequence[Answers] = MappingProxyType({})) -> None:
        if not isinstance(answers, Mapping | list | tuple):
            raise TypeError(f"answers= must be a mapping, or a list with one mapping per round, got {answers!r}")
        rounds = [(None, answers)] if isinstance(answers, Mapping) else enumerate(answers, 1)
        self.replies = [one for number, replies in rounds for one in prepare_values(replies, round=number)]
        self.is_single_use = False
        """True if the last answer came from a list, which means that it cannot be used again."""

    def reply(self, question: AskedQuestion) -> InputResponse | Silence | None:
        """Return the answer to a question; None if the script has no answer left."""
        for one in self.replies:
            if one.fits(question):
                self.is_single_use = one.is_single_use
                value = one.take()
                return value if isinstance(value, Silence) else response_to(question, value)
        return None

    @property
    def unused(self) -> list[str]:
        """Return descriptions of the prepared answers that no question used."""
        return describe_unused(self.replies)


def describe_unused(values: Iterable[PreparedValues[Any]], unit: str = "") -> list[str]:
    """Describe the prepared values that no question used. For a list, say how many of its values are left."""
    return [
        str(one)
        + (f" ({len(one.remaining)}{unit} left)" if one.in_order else "")
        + (f" in round {one.round}" if one.round is not None else "")
        for one in values
        if not one.is_used
    ]


def response_to(question: AskedQuestion, reply: Reply) -> InputResponse:
    """Convert a reply to the response that the client sends."""
    if isinstance(reply, ElicitResult | CreateMessageResult | ListRootsResult):
        return reply
    if question.params is None:
        if not isinstance(reply, Mapping):
            raise TypeError(
                f"roots must be JSON data, got {reply!r}; pass User(roots=...), or answer "
                "{'roots': [{'uri': 'file:///films'}]}"
            )
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
        # If the form's fields are known, any other field name is a typo.
        unknown = [name for name in cast("dict[str, Any]", plain) if fields and name not in fields]
        if unknown:
            raise AssertionError(
                f"the answer to {question} has {', '.join(map(repr, unknown))}, but the form has only "
                f"{', '.join(map(repr, fields))}; to send an invalid answer, use an ElicitResult"
            )
        return ElicitResult(action="accept", content=cast("dict[str, Any]", plain))
    if plain is False and not fields:
        raise AssertionError(
            f"the answer to {question} must be ACCEPT or DECLINE, because its form has no fields, got False"
        )
    if len(fields) > 1:
        raise AssertionError(
            f"the answer to {question} must be a mapping, because its form has several fields "
            f"({', '.join(map(repr, fields))}), got {plain!r}"
        )
    return ElicitResult(action="accept", content={next(iter(fields), "value"): plain})
