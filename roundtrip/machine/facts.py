"""Provide the facts that a call reports to its watcher besides its transitions.

Facts have no times: a watcher has its own clock, and receives a fact when a thing begins and when it ends.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from roundtrip.errors import Decision


class Reason(StrEnum):
    """Reasons for asking a question: for the trace, never for the wire."""

    NEW = "new"
    """The call has not asked it before."""
    MISSING = "missing"
    """It was asked, and no answer came."""
    INVALID = "invalid"
    """Its answer did not fit its form."""
    REWORDED = "reworded"
    """Its message differs from the answered message."""
    SCHEMA_CHANGED = "schema changed"
    """Its form differs from the answered form. Its message may differ, too."""
    KEY_GONE = "key gone"
    """The key that its answer was pinned with has left the ring, so the server cannot tell if the wording changed."""
    RENAMED = "renamed away"
    """An answer to the same question is known under a name that no question has now."""
    VOLATILE = "volatile"
    """Its wording changes from leg to leg of one build, so that answers to it are lost."""
    OTHER_BUILD = "other build"
    """Another build of the application began the call, and asked, or accepted, something else."""
    UNFINISHED = "unfinished"
    """The user agreed to visit a page, and has not finished there."""
    REVISED = "revised"
    """The user changed an earlier answer, on which it may depend."""


NodeHow = Literal["computed", "asked", "answered", "recalled", "entered", "failed"]


class NodeBegan(NamedTuple):
    """A resolver or another dependency runs."""

    key: str


class NodeEnded(NamedTuple):
    """A dependency has yielded, asked, or failed; `recalled` did not run, as its first outcome is final."""

    key: str
    how: NodeHow


class BodyBegan(NamedTuple):
    """The body runs from its top; `uncovered` is set if it should run once for a call, and no claim ensures it."""

    uncovered: bool = False


class StepBegan(NamedTuple):
    """A step of the body runs."""

    key: str


class StepEnded(NamedTuple):
    """A step has a result, in its JSON form, or failed; `recalled` did not run."""

    key: str
    how: Literal["ran", "recalled", "failed"]
    value: Any = None


class AnswerRead(NamedTuple):
    """An answer of this round was read; `lost` was given to another wording."""

    key: str
    action: Literal["accept", "decline", "cancel"] | None
    how: Literal["taken", "invalid", "lost"]
    data: Any = None


class AnswerReused(NamedTuple):
    """An answer of an earlier round was used."""

    key: str


class Fixed(NamedTuple):
    """The server fixed a value for the rest of the call, in its JSON form, under its name in the journal."""

    key: str
    value: Any


class ApprovalRead(NamedTuple):
    """A decision about an approval was read."""

    key: str
    by: str
    decision: Decision


class AnswersIgnored(NamedTuple):
    """Answers arrived that no question had asked for."""

    number: int


Watch = Callable[[Any], None]
"""Receives every fact of a call's leg in order: each `Transition`, these facts, and those of higher floors.

It must not raise: an exception would end the leg.
"""
