"""What a scripted user answers to which question."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, cast

from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    InputResponse,
    TextContent,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from roundtrip.testing.conversations import Question

__all__ = ["ACCEPT", "CANCEL", "DECLINE", "Answers", "Outcome", "Replies", "Reply", "Script", "response_to"]


class Outcome(Enum):
    """What a user may do with a question besides answering it."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


ACCEPT: Final = Outcome.ACCEPT
"""Agree, as to go to a page, or to a form as it stands."""
DECLINE: Final = Outcome.DECLINE
"""Say no."""
CANCEL: Final = Outcome.CANCEL
"""Break the question off."""

Reply = Outcome | ElicitResult | CreateMessageResult | BaseModel | Mapping[str, Any] | str | int | float | bool | None
"""An answer: the content of a form, the value of a form with one field, the text of a model, or an outcome."""

Answers = Mapping[str | re.Pattern[str] | Callable[[Question], bool], Reply | Sequence[Any]]
"""Replies by a question's name, by a pattern that its message holds, or by a function; a list is used up in order."""


class Replies(Protocol):
    """Who answers the questions of a call."""

    may_be_silent: bool
    """Whether a question without an answer is meant to stay so."""

    def reply(self, question: Question) -> InputResponse | None:
        """The answer to a question; None for none."""
        ...

    @property
    def unused(self) -> list[str]:
        """What nobody has asked for."""
        ...


class Script:
    """Answers questions as it was told beforehand, and knows what it has not been asked."""

    may_be_silent = False

    def __init__(self, answers: Answers) -> None:
        self._entries: list[tuple[Any, list[Reply] | Reply]] = [
            (matcher, list(cast("Sequence[Reply]", reply)) if _is_sequence(reply) else cast("Reply", reply))
            for matcher, reply in answers.items()
        ]
        self._used: set[int] = set()

    def reply(self, question: Question) -> InputResponse | None:
        """The answer to a question; None where there is none, or none any more."""
        for place, (matcher, reply) in enumerate(self._entries):
            if not _fits(matcher, question):
                continue
            if isinstance(reply, list):
                if not reply:
                    continue
                given = reply.pop(0)
                if not reply:
                    self._used.add(place)
            else:
                given = reply
                self._used.add(place)
            return response_to(question, given)
        return None

    @property
    def unused(self) -> list[str]:
        """What nobody has asked for."""
        return [
            _told(matcher) + (f" ({len(reply)} left)" if isinstance(reply, list) else "")
            for place, (matcher, reply) in enumerate(self._entries)
            if place not in self._used
        ]


def _is_sequence(reply: object) -> bool:
    return isinstance(reply, list | tuple)


def _fits(matcher: Any, question: Question) -> bool:
    if isinstance(matcher, str):
        return question.key == matcher
    if isinstance(matcher, re.Pattern):
        return cast("re.Pattern[str]", matcher).search(question.message) is not None
    return bool(matcher(question))


def _told(matcher: Any) -> str:
    if isinstance(matcher, re.Pattern):
        return f"/{cast('re.Pattern[str]', matcher).pattern}/"
    return repr(matcher) if isinstance(matcher, str) else getattr(matcher, "__name__", repr(matcher))


def response_to(question: Question, reply: Reply) -> InputResponse:
    """A reply as the client sends it."""
    if isinstance(reply, ElicitResult | CreateMessageResult):
        return reply
    if isinstance(question.params, CreateMessageRequestParams):
        content = TextContent(type="text", text=reply if isinstance(reply, str) else str(reply))
        return CreateMessageResult(role="assistant", content=content, model="scripted")
    if isinstance(reply, Outcome):
        return ElicitResult(action=reply.value)
    plain: Any = to_jsonable_python(reply, by_alias=True)
    if not isinstance(plain, dict):
        # The form of a single value has one field.
        plain = {next(iter((question.schema or {}).get("properties", {"value": None})), "value"): plain}
    return ElicitResult(action="accept", content=cast("dict[str, Any]", plain))
