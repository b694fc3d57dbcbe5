"""What a check of recorded calls found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from roundtrip.checking.recorded import SeenQuestion

__all__ = ["AskedAgain", "Cause", "Checked", "Divergence", "Turn", "Verdict"]


class Verdict(StrEnum):
    """What the code as it is now would make of a recorded call."""

    COMPATIBLE = "compatible"
    ASKS_AGAIN = "asks again"
    """It takes the same way, but some answers would not count any more."""
    DIVERGES = "diverges"
    NOT_REPLAYED = "not replayed"


class Cause(StrEnum):
    """Why an answer would not count any more."""

    REWORDED = "reworded"
    SCHEMA_CHANGED = "schema changed"
    RENAMED = "renamed without was="
    INVALID = "its answer is not valid any more"
    UNKNOWN = "its answer is not found any more"


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A question whose answer would not count any more."""

    cause: Cause
    before: SeenQuestion
    now: SeenQuestion
    complaint: str | None = None
    """What is wrong with the answer now."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How a call goes on: with questions, or by what is told."""

    told: str
    questions: tuple[SeenQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a call would go on in another way."""

    round: int
    """The round of questions that is another one, or would have followed."""
    expected: Turn
    actual: Turn


@dataclass(slots=True)
class Checked:
    """One recorded call, and what was found."""

    call: str
    method: str
    name: str
    again: list[AskedAgain] = field(default_factory=list[AskedAgain])
    divergences: list[Divergence] = field(default_factory=list[Divergence])
    notes: list[str] = field(default_factory=list[str])
    """How far it was checked, where that is not to its end."""
    not_replayed: str | None = None
    """Why nothing was checked."""

    @property
    def verdict(self) -> Verdict:
        """The worst of what was found."""
        if self.not_replayed is not None:
            return Verdict.NOT_REPLAYED
        if self.divergences:
            return Verdict.DIVERGES
        return Verdict.ASKS_AGAIN if self.again else Verdict.COMPATIBLE

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        verdict = self.verdict
        if verdict is Verdict.ASKS_AGAIN:
            return f"asks {len(self.again)} again"
        if verdict is Verdict.DIVERGES:
            return f"diverges at round {min(divergence.round for divergence in self.divergences)}"
        return verdict.value

    def note_again(self, found: AskedAgain) -> None:
        """Note a question that would be asked again; once, however often."""
        if all(other.before.key != found.before.key for other in self.again):
            self.again.append(found)

    def note_divergence(self, found: Divergence) -> None:
        """Note a divergence; once, though it may show on several legs."""
        if all(_gist(other) != _gist(found) for other in self.divergences):
            self.divergences.append(found)


def _gist(divergence: Divergence) -> tuple[object, ...]:
    expected, actual = _keys(divergence.expected.questions), _keys(divergence.actual.questions)
    if divergence.actual.questions or divergence.expected.questions:
        return (expected - actual, actual - expected, "" if divergence.actual.questions else divergence.actual.told)
    return (divergence.actual.told,)


def _keys(questions: Sequence[SeenQuestion]) -> frozenset[str]:
    return frozenset(question.key for question in questions)
