"""The results of checking recorded calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from roundtrip.checking.recorded import SeenQuestion

__all__ = ["AskedAgain", "Cause", "Checked", "Divergence", "Turn", "Verdict"]


class Verdict(StrEnum):
    """The result of a check of one call."""

    COMPATIBLE = "compatible"
    ASKS_AGAIN = "asks again"
    """It goes on as recorded, but some answers no longer count."""
    DIVERGES = "diverges"
    NOT_REPLAYED = "not replayed"


class Cause(StrEnum):
    """The reason that an answer no longer counts."""

    REWORDED = "reworded"
    SCHEMA_CHANGED = "schema changed"
    RENAMED = "renamed without was="
    INVALID = "its answer is no longer valid"
    UNKNOWN = "its answer is no longer found"


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A question whose answer no longer counts."""

    cause: Cause
    before: SeenQuestion
    now: SeenQuestion
    complaint: str | None = None
    """The error in the answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The next step of a call: its questions, or a text that describes another end."""

    text: str
    questions: tuple[SeenQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """A round after which a call goes on in another way."""

    round: int
    """The round that differs, or would have followed."""
    expected: Turn
    actual: Turn


@dataclass(slots=True)
class Checked:
    """One recorded call, and its result."""

    call: str
    method: str
    name: str
    again: list[AskedAgain] = field(default_factory=list[AskedAgain])
    divergences: list[Divergence] = field(default_factory=list[Divergence])
    notes: list[str] = field(default_factory=list[str])
    """Limits of the check, if it did not reach the end."""
    not_replayed: str | None = None
    """The reason that nothing was checked."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst result."""
        if self.not_replayed is not None:
            return Verdict.NOT_REPLAYED
        if self.divergences:
            return Verdict.DIVERGES
        return Verdict.ASKS_AGAIN if self.again else Verdict.COMPATIBLE

    @property
    def headline(self) -> str:
        """Describe the verdict in a few words."""
        verdict = self.verdict
        if verdict is Verdict.ASKS_AGAIN:
            return f"asks {len(self.again)} again"
        if verdict is Verdict.DIVERGES:
            return f"diverges at round {min(divergence.round for divergence in self.divergences)}"
        return verdict.value

    def note_again(self, found: AskedAgain) -> None:
        """Add a question that is asked again, once per question."""
        if all(other.before.key != found.before.key for other in self.again):
            self.again.append(found)

    def note_divergence(self, found: Divergence) -> None:
        """Add a divergence, once even if it shows on several legs."""
        if all(_gist(other) != _gist(found) for other in self.divergences):
            self.divergences.append(found)


def _gist(divergence: Divergence) -> tuple[object, ...]:
    expected, actual = _keys(divergence.expected.questions), _keys(divergence.actual.questions)
    if divergence.actual.questions or divergence.expected.questions:
        return (expected - actual, actual - expected, "" if divergence.actual.questions else divergence.actual.text)
    return (divergence.actual.text,)


def _keys(questions: Sequence[SeenQuestion]) -> frozenset[str]:
    return frozenset(question.key for question in questions)
