"""Check results, as text for people and as JSON data for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

from roundtrip.checking.recorded import SeenQuestion
from roundtrip.text import printable

_MAX_TEXT_CHARS: Final = 500


class Verdict(StrEnum):
    """Outcome of one call's check."""

    COMPATIBLE = "compatible"
    ASKS_AGAIN = "asks again"
    """The call continues as recorded, but some answers no longer count."""
    DIVERGES = "diverges"
    NOT_CHECKED = "not checked"
    """The call, or its body's questions, could not be replayed. In the part that was replayed, the check found no
    differences.
    """


class Cause(StrEnum):
    """Reason that an answer no longer counts."""

    REWORDED = "reworded"
    SCHEMA_CHANGED = "schema changed"
    RENAMED = "renamed without former_names="
    INVALID = "its answer is no longer valid"
    UNKNOWN = "its answer is no longer found"


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A question whose recorded answer no longer counts."""

    cause: Cause
    before: SeenQuestion
    now: SeenQuestion
    complaint: str | None = None
    """The error in the recorded answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A leg's result: its questions, or a text that says how else the leg ended."""

    text: str
    questions: tuple[SeenQuestion, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Return the question names."""
        return frozenset(question.key for question in self.questions)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first round at which a call differs from its record."""

    round: int
    """The number of the round that differs. If this round was not recorded, the number that it would have had."""
    expected: Turn
    actual: Turn

    @property
    def gist(self) -> tuple[object, ...]:
        """Return a key for comparison. Legs that show the same divergence have the same key."""
        expected, actual = self.expected.keys, self.actual.keys
        return expected - actual, actual - expected, "" if actual else self.actual.text


@dataclass(slots=True)
class CheckResult:
    """The check's result for one recorded call."""

    call: str
    method: str
    name: str
    again: list[AskedAgain] = field(default_factory=list[AskedAgain])
    divergences: list[Divergence] = field(default_factory=list[Divergence])
    notes: list[str] = field(default_factory=list[str])
    """Notes about what the check could not cover."""
    not_checked: str | None = None
    """Why the call was not checked completely."""

    @property
    def verdict(self) -> Verdict:
        """Return the most serious outcome that the check found."""
        if self.divergences:
            return Verdict.DIVERGES
        if self.again:
            return Verdict.ASKS_AGAIN
        return Verdict.NOT_CHECKED if self.not_checked is not None else Verdict.COMPATIBLE

    @property
    def headline(self) -> str:
        """Return the verdict in a few words."""
        verdict = self.verdict
        if verdict is Verdict.ASKS_AGAIN:
            return f"asks {len(self.again)} again"
        if verdict is Verdict.DIVERGES:
            return f"diverges at round {min(divergence.round for divergence in self.divergences)}"
        return verdict.value

    def note_again(self, item: AskedAgain) -> None:
        """Add a question that is asked again, unless it is already listed."""
        if all(other.before.key != item.before.key for other in self.again):
            self.again.append(item)

    def note_divergence(self, item: Divergence) -> None:
        """Add a divergence, unless an earlier leg showed the same divergence."""
        if all(other.gist != item.gist for other in self.divergences):
            self.divergences.append(item)


_WORDS: Final = {
    Verdict.COMPATIBLE: "compatible",
    Verdict.ASKS_AGAIN: "asking again",
    Verdict.DIVERGES: "diverging",
    Verdict.NOT_CHECKED: "not checked",
}


def as_text(checked: CheckResult) -> str:
    """Return one call's report: its verdict, and the recorded questions next to the current ones."""
    head = f"{printable(checked.call)}  {printable(checked.name)}: {checked.headline}"
    if checked.verdict is Verdict.NOT_CHECKED:
        head = f"{head}: {printable(str(checked.not_checked))}"
    lines = [head]
    for divergence in sorted(checked.divergences, key=lambda divergence: divergence.round):
        lines += _divergence_lines(divergence)
    for again in checked.again:
        lines += _again_lines(again)
    if checked.not_checked is not None and checked.verdict is not Verdict.NOT_CHECKED:
        lines.append(f"  not checked: {printable(checked.not_checked)}")
    lines += [f"  note: {printable(note)}" for note in checked.notes]
    return "\n".join(lines)


def summary(checked: Sequence[CheckResult]) -> str:
    """Count the calls by verdict."""
    verdicts = [result.verdict for result in checked]
    counts = [f"{verdicts.count(verdict)} {word}" for verdict, word in _WORDS.items()]
    return f"{len(verdicts)} {'call' if len(verdicts) == 1 else 'calls'}: {', '.join(counts)}"


def as_data(checked: CheckResult) -> dict[str, Any]:
    """Return one call's report as JSON data."""
    return {
        "call": checked.call,
        "method": checked.method,
        "tool": checked.name,
        "verdict": checked.verdict.value,
        "asks_again": [
            {
                "key": again.before.key,
                "cause": again.cause.value,
                "complaint": again.complaint,
                "recorded": question_data(again.before),
                "now": question_data(again.now),
            }
            for again in checked.again
        ],
        "divergences": [
            {
                "round": divergence.round,
                "recorded": _turn_data(divergence.expected),
                "now": _turn_data(divergence.actual),
            }
            for divergence in checked.divergences
        ],
        "notes": checked.notes,
        "not_checked": checked.not_checked,
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {"text": turn.text, "questions": [question_data(question) for question in turn.questions]}


def question_data(question: SeenQuestion) -> dict[str, Any]:
    """Return a question as JSON data."""
    parts = {name: getattr(question, name) for name in ("key", "kind", "message", "form", "url", "by")}
    return {name: value for name, value in parts.items() if value is not None}


def _divergence_lines(divergence: Divergence) -> Iterator[str]:
    yield f"  round {divergence.round}"
    yield f"    recorded: {_turn(divergence.expected)}"
    yield f"    now:      {_turn(divergence.actual)}"
    for question in divergence.actual.questions:
        if question.key not in divergence.expected.keys:
            yield f"    {printable(question.key)!r} says {quoted(words(question))}"


def _turn(turn: Turn) -> str:
    if not turn.questions:
        return _cut(printable(turn.text))
    return f"{turn.text} {', '.join(repr(printable(question.key)) for question in turn.questions)}"


def _again_lines(again: AskedAgain) -> Iterator[str]:
    before, now = again.before, again.now
    if again.cause is Cause.RENAMED or before.key != now.key:
        yield f"  {printable(before.key)!r}: {again.cause}, now {printable(now.key)!r}"
    else:
        yield f"  {printable(before.key)!r}: {again.cause}"
    if again.complaint is not None:
        yield f"    {_cut(printable(again.complaint))}"
    if words(before) != words(now):
        yield f"    recorded: {quoted(words(before))}"
        yield f"    now:      {quoted(words(now))}"
    if before.form is not None and now.form is not None:
        yield from (f"    {line}" for line in _difference(before.form, now.form))


def words(question: SeenQuestion) -> str:
    """Return a question's wording as one text."""
    if question.kind == "roots":
        return "the client's roots"
    if question.kind == "approval":
        return f"{question.message} (decided by {question.by!r})"
    if isinstance(question.message, str):
        return question.message if question.url is None else f"{question.message} <{question.url}>"
    return json.dumps(question.message, sort_keys=True)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two forms. Each difference names its path in the form."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    for path in dict.fromkeys([*old, *new]):
        if old.get(path) != new.get(path):
            for sign, side in (("-", old), ("+", new)):
                if path in side:
                    yield f"{sign} {printable(path)}: {_cut(side[path])}"


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in cast("Mapping[str, object]", value).items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(value).replace("\x7f", "\\u007f")


def quoted(text: str) -> str:
    """Return a transcript text in quotes. The result is safe to print on a terminal."""
    return f"'{_cut(printable(text))}'"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}..."
