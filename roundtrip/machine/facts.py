"""Facts that a call reports to its watcher besides its transitions.

Facts carry no times. The watcher uses its own clock, and receives one fact when something begins and one when it ends.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from roundtrip.errors import Decision


class Reason(StrEnum):
    """Reasons for asking a question: for the trace, never for the wire."""

    NEW = "new"
    """The call has not asked the question before."""
    MISSING = "missing"
    """The call asked the question and received no answer."""
    INVALID = "invalid"
    """The answer did not fit its form."""
    REWORDED = "reworded"
    """The message differs from the answered message."""
    SCHEMA_CHANGED = "schema changed"
    """The form differs from the answered form. The message may also differ."""
    KEY_GONE = "key gone"
    """The key that pinned the answer has left the ring, so the server cannot tell whether the wording changed."""
    RENAMED = "renamed away"
    """The same question was answered under a name that no question has now."""
    VOLATILE = "volatile"
    """The wording changes between legs of the same build, so answers to it are lost."""
    OTHER_BUILD = "other build"
    """Another application build began the call, and asked or accepted something else."""
    UNFINISHED = "unfinished"
    """The user agreed to visit a page and has not finished there."""
    REVISED = "revised"
    """The user changed an earlier answer that this question may depend on."""


NodeHow = Literal["computed", "asked", "answered", "recalled", "entered", "failed"]


class NodeBegan(NamedTuple):
    """A resolver or another dependency begins."""

    key: str


class NodeEnded(NamedTuple):
    """A dependency has yielded, asked or failed. If `recalled`, it did not run, because its first outcome is final."""

    key: str
    how: NodeHow


class BodyBegan(NamedTuple):
    """The body runs from its top. `uncovered` means that it should run once per call and no claim ensures that."""

    uncovered: bool = False


class StepBegan(NamedTuple):
    """A step of the body begins."""

    key: str


class StepEnded(NamedTuple):
    """A step has returned a result (in JSON form) or failed. If `recalled`, it did not run."""

    key: str
    how: Literal["ran", "recalled", "failed"]
    value: Any = None


class AnswerRead(NamedTuple):
    """An answer from this round was read. If `lost`, it answered another wording."""

    key: str
    action: Literal["accept", "decline", "cancel"] | None
    how: Literal["taken", "invalid", "lost"]
    data: Any = None


class AnswerReused(NamedTuple):
    """An answer from an earlier round was used."""

    key: str


class Fixed(NamedTuple):
    """The server fixed a value (in JSON form) for the rest of the call, under its name in the journal."""

    key: str
    value: Any


class ApprovalRead(NamedTuple):
    """An approval decision was read."""

    key: str
    by: str
    decision: Decision


class AnswersIgnored(NamedTuple):
    """Answers arrived that no question had asked for."""

    number: int


Watch = Callable[[Any], None]
"""Receives every fact about a call's leg in order: each `Transition`, these facts, and the facts that higher layers
define.

It must not raise, because an exception would end the leg.
"""
