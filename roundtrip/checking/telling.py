"""The report of a check, for people and for programs; control characters are escaped."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from roundtrip.checking.recorded import SeenQuestion
from roundtrip.checking.verdicts import AskedAgain, Cause, Checked, Divergence, Turn, Verdict
from roundtrip.safe_text import printable

__all__ = ["as_data", "as_text", "summary"]

_MAX_TEXT_CHARS: Final = 500

_WORDS: Final = {Verdict.COMPATIBLE: "compatible", Verdict.ASKS_AGAIN: "asking again", Verdict.DIVERGES: "diverging"}


def as_text(checked: Checked) -> str:
    """Return the report on one call: its verdict, and the recorded next to the present questions."""
    head = f"{printable(checked.call)}  {printable(checked.name)}: {checked.headline}"
    if checked.not_replayed is not None:
        return f"{head}: {printable(checked.not_replayed)}"
    lines = [head]
    for divergence in sorted(checked.divergences, key=lambda divergence: divergence.round):
        lines += _divergence_lines(divergence)
    for again in checked.again:
        lines += _again_lines(again)
    lines += [f"  note: {printable(note)}" for note in checked.notes]
    return "\n".join(lines)


def summary(checked: Sequence[Checked]) -> str:
    """Count the calls of each verdict."""
    verdicts = [one.verdict for one in checked]
    counts = [f"{verdicts.count(verdict)} {word}" for verdict, word in _WORDS.items()]
    skipped = verdicts.count(Verdict.NOT_REPLAYED)
    if skipped:
        counts.append(f"{skipped} not replayed")
    return f"{len(verdicts)} {'call' if len(verdicts) == 1 else 'calls'}: {', '.join(counts)}"


def as_data(checked: Checked) -> dict[str, Any]:
    """Return the report on one call as JSON data."""
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
                "recorded": _question_data(again.before),
                "now": _question_data(again.now),
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
        "not_replayed": checked.not_replayed,
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {"text": turn.text, "questions": [_question_data(question) for question in turn.questions]}


def _question_data(question: SeenQuestion) -> dict[str, Any]:
    parts = {"kind": question.kind, "message": question.message, "form": question.form, "url": question.url}
    return {"key": question.key} | {name: value for name, value in parts.items() if value is not None}


def _divergence_lines(divergence: Divergence) -> Iterator[str]:
    yield f"  round {divergence.round}"
    yield f"    recorded: {_turn(divergence.expected)}"
    yield f"    now:      {_turn(divergence.actual)}"
    known = {question.key for question in divergence.expected.questions}
    for question in divergence.actual.questions:
        if question.key not in known:
            yield f"    {printable(question.key)!r} says {_quoted(_words(question))}"


def _turn(turn: Turn) -> str:
    if not turn.questions:
        return _cut(printable(turn.text))
    return f"{turn.text} {', '.join(repr(printable(question.key)) for question in turn.questions)}"


def _again_lines(again: AskedAgain) -> Iterator[str]:
    before, now = again.before, again.now
    if again.cause is Cause.RENAMED or before.key != now.key:
        yield f"  {printable(before.key)!r}: {again.cause}, it is {printable(now.key)!r} now"
    else:
        yield f"  {printable(before.key)!r}: {again.cause}"
    if again.complaint is not None:
        yield f"    {_cut(printable(again.complaint))}"
    if _words(before) != _words(now):
        yield f"    recorded: {_quoted(_words(before))}"
        yield f"    now:      {_quoted(_words(now))}"
    if before.form is not None and now.form is not None:
        yield from (f"    {line}" for line in _difference(before.form, now.form))


def _words(question: SeenQuestion) -> str:
    """Return the wording of a question as one text."""
    if question.kind == "roots":
        return "the client's roots"
    if isinstance(question.message, str):
        return question.message if question.url is None else f"{question.message} <{question.url}>"
    return json.dumps(question.message, sort_keys=True)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """List the differing parts of two forms, by their paths."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    for path in dict.fromkeys([*old, *new]):
        if old.get(path) != new.get(path):
            yield from (f"{sign} {printable(path)}: {_cut(side[path])}" for sign, side in _sides(old, new, path))


def _sides(old: dict[str, str], new: dict[str, str], path: str) -> Iterator[tuple[str, dict[str, str]]]:
    if path in old:
        yield "-", old
    if path in new:
        yield "+", new


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in cast("Mapping[str, object]", value).items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(value).replace("\x7f", "\\u007f")


def _quoted(text: str) -> str:
    return f"'{_cut(printable(text))}'"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}..."
