"""Facts about a call. Its watcher receives them in addition to transitions.

Facts carry no times, because the watcher has a clock. A resolver or step reports one fact when it begins, and another
when it ends.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from roundtrip.errors import Decision


class Reason(StrEnum):
    """Reasons for asking a question. They appear in traces, never on the wire."""

    NEW = "new"
    """The call has not asked the question before."""
    MISSING = "missing"
    """The call asked the question and received no answer."""
    INVALID = "invalid"
    """The answer did not fit the question."""
    REWORDED = "reworded"
    """The message has changed since the user answered it."""
    SCHEMA_CHANGED = "schema changed"
    """The form has changed since the user answered it. The message may also have changed."""
    KEY_GONE = "key gone"
    """The key that pinned the answer is no longer in the key ring, so the server cannot tell whether the wording
    changed.
    """
    RENAMED = "renamed away"
    """The user answered the same question under a former name that is no longer in use."""
    VOLATILE = "volatile"
    """The wording changes from leg to leg within one build, so the user's answers are lost."""
    OTHER_BUILD = "other build"
    """Another build of the application began the call, and its questions or accepted answers differ."""
    UNFINISHED = "unfinished"
    """The user agreed to visit a page, but has not finished there."""
    REVISED = "revised"
    """The user changed an earlier answer that this question may depend on."""


NodeHow = Literal["computed", "asked", "answered", "recalled", "entered", "failed"]


class NodeBegan(NamedTuple):
    """A resolver or another dependency has begun."""

    key: str


class NodeEnded(NamedTuple):
    """A dependency has returned a value, asked a question or failed. If it was `recalled`, it did not run, because its
    first outcome was kept.
    """

    key: str
    how: NodeHow


class IntentFound(NamedTuple):
    """The server looked the call's intent up. The leg `began` a call, `continued` its own one, `joined` the call that
    another request had begun or continued, or `recalled` the end of an earlier call.
    """

    how: Literal["began", "continued", "joined", "recalled"]
    recalled_from: str | None = None
    """The id of the other call: the call whose end was recalled, or the stored call that the request joined."""
    has_begun_again: bool = False
    """True if the client began again: its first request joined a call that had begun before."""
    token_leg: int | None = None
    """The leg that wrote the request's token, if another request has continued the call since then."""


class BodyBegan(NamedTuple):
    """The body has begun to run from its top. `uncovered` means that the body should run once per call, but no claim
    ensures this.
    """

    uncovered: bool = False


class StepBegan(NamedTuple):
    """A step in the body has begun."""

    key: str


class StepEnded(NamedTuple):
    """A step has returned a result (in JSON form) or failed. If it was `recalled`, it did not run, because its earlier
    result was kept.
    """

    key: str
    how: Literal["ran", "recalled", "failed"]
    value: Any = None


class AnswerRead(NamedTuple):
    """The server read an answer from this round. A `lost` answer belongs to another wording, so it does not count."""

    key: str
    action: Literal["accept", "decline", "cancel"] | None
    how: Literal["taken", "invalid", "lost"]
    data: Any = None


class AnswerReused(NamedTuple):
    """The server used an answer from an earlier round."""

    key: str


class Fixed(NamedTuple):
    """The server stored a value (in JSON form) that stays the same for the rest of the call. The journal stores it
    under `key`.
    """

    key: str
    value: Any


class ApprovalRead(NamedTuple):
    """The server read an approval decision."""

    key: str
    by: str
    decision: Decision


class AnswersIgnored(NamedTuple):
    """The client sent answers to questions that the call had not asked."""

    number: int


Watch = Callable[[Any], None]
"""A function that receives every fact about a call's leg, in order: each `Transition`, the facts in this module, and
the facts that other packages define.

It must not raise, because an exception would end the leg.
"""
