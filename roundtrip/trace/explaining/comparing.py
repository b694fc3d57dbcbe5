"""Compare two calls by round and question. Times and instances are ignored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from roundtrip.trace.explaining.stories import outcome_of
from roundtrip.trace.explaining.wording import recorded_text
from roundtrip.trace.reading.calls import Round, TracedCall
from roundtrip.trace.writing.lines import Digested, EndedLine, ReadAnswer, Recorded, Revealed, ShownQuestion

__all__ = ["Difference", "compare"]

_TEXTS: Final = ("message", "form", "url", "complaint")


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two calls. `a` and `b` are the texts of the two sides; None if a side lacks it."""

    round: int | None
    """None if it concerns the whole call."""
    key: str | None
    """The name of the question; None if it concerns a whole round or call."""
    what: str
    a: str | None
    b: str | None


def compare(a: TracedCall, b: TracedCall) -> list[Difference]:
    """Return the differences: of tools and arguments first, then of each round, then of paths and results.

    If only one transcript reveals a value, it is not compared. Digests are comparable if one key made both.
    """
    return [*_heads(a, b), *_rounds(a, b), *_ends(a, b)]


def _heads(a: TracedCall, b: TracedCall) -> Iterator[Difference]:
    yield from _unequal("tool", a.tool, b.tool)
    if a.began is not None and b.began is not None:
        yield from _unequal("version", a.began.version, b.began.version)
        yield from _values("arguments", a.began.arguments, b.began.arguments)


def _rounds(a: TracedCall, b: TracedCall) -> Iterator[Difference]:
    for one, other in zip_longest(_rounds_of(a), _rounds_of(b)):
        number = (one or other).number
        asked = [round_.asked if round_ is not None else None for round_ in (one, other)]
        keys = [[question.key for question in line.questions] if line is not None else [] for line in asked]
        if one is not None and other is not None:
            yield from _unequal("asked by", one.asked.by, other.asked.by, round=number)
        common = [[key for key in mine if key in theirs] for mine, theirs in (keys, keys[::-1])]
        if common[0] != common[1]:
            yield Difference(number, None, "order", ", ".join(common[0]), ", ".join(common[1]))
        for key in dict.fromkeys([*keys[0], *keys[1]]):
            yield from _question(number, key, one, other)
        reused = [", ".join(sorted(line.reused)) if line is not None else "" for line in asked]
        if one is not None and other is not None and _same_era(a, b):
            yield from _unequal("reused", reused[0] or None, reused[1] or None, round=number)


def _question(number: int, key: str, one: Round | None, other: Round | None) -> Iterator[Difference]:
    mine, theirs = _find(one, key), _find(other, key)
    if mine is None or theirs is None:
        shown = mine or theirs
        text = _question_text(shown) if shown is not None else ""
        yield Difference(number, key, "question", text if mine is not None else None, text if theirs else None)
    else:
        yield from _unequal("kind", mine.kind, theirs.kind, round=number, key=key)
        yield from _unequal("reason", mine.reason.value, theirs.reason.value, round=number, key=key)
        for name in _TEXTS:
            yield from _values(name, getattr(mine, name), getattr(theirs, name), round=number, key=key)
    answers = [_answer(round_, key) for round_ in (one, other)]
    if mine is not None and theirs is not None:
        yield from _answers(number, key, answers[0], answers[1])


def _answers(number: int, key: str, one: ReadAnswer | None, other: ReadAnswer | None) -> Iterator[Difference]:
    outcomes = [outcome_of(answer) if answer is not None else None for answer in (one, other)]
    if outcomes[0] != outcomes[1]:
        yield Difference(number, key, "answer", _answer_text(one), _answer_text(other))
    elif one is not None and other is not None:
        yield from _values("answer", one.data, other.data, round=number, key=key)


def _ends(a: TracedCall, b: TracedCall) -> Iterator[Difference]:
    yield from _unequal("path", _path(a), _path(b))
    yield from _unequal("state", a.state.value, b.state.value)
    if _same_era(a, b):
        yield from _unequal("runs of the body", _bodies(a), _bodies(b))
    one, other = a.ended, b.ended
    if one is not None and other is not None:
        yield from _values("result", one.result, other.result)
        yield from _unequal("decline", one.decline, other.decline)
        yield from _unequal("error", _error(one), _error(other))
        if one.error is not None and other.error is not None and one.error.type == other.error.type:
            yield from _values("error", one.error.text, other.error.text)


def _same_era(a: TracedCall, b: TracedCall) -> bool:
    """Return True if the eras are equal or unknown. Only the retry era runs a body again and reuses answers."""
    return a.began is None or b.began is None or a.began.era == b.began.era


def _rounds_of(call: TracedCall) -> list[Round]:
    counted = {id(serving) for serving in call.chain}
    return [round_ for round_ in call.rounds if id(round_.serving) in counted]


def _path(call: TracedCall) -> str:
    return " → ".join(state for serving in call.chain for _, state, _ in serving.moves)


def _bodies(call: TracedCall) -> str:
    return str(sum(serving.bodies for serving in call.chain))


def _find(round_: Round | None, key: str) -> ShownQuestion | None:
    questions: Sequence[ShownQuestion] = round_.asked.questions if round_ is not None else ()
    return next((question for question in questions if question.key == key), None)


def _answer(round_: Round | None, key: str) -> ReadAnswer | None:
    return next((answer for answer in round_.answers if answer.key == key), None) if round_ is not None else None


def _question_text(question: ShownQuestion) -> str:
    message = f": {recorded_text(question.message)}" if question.message is not None else ""
    return f"asked ({question.reason.value}){message}"


def _answer_text(answer: ReadAnswer | None) -> str | None:
    if answer is None:
        return None
    return f"{outcome_of(answer)} {recorded_text(answer.data) if answer.data is not None else ''}".rstrip()


def _error(line: EndedLine) -> str | None:
    return line.error.type if line.error is not None else None


def _unequal(
    what: str, a: str | None, b: str | None, *, round: int | None = None, key: str | None = None
) -> Iterator[Difference]:
    if a != b:
        yield Difference(round, key, what, a, b)


def _values(
    what: str, a: Recorded | None, b: Recorded | None, *, round: int | None = None, key: str | None = None
) -> Iterator[Difference]:
    revealed = isinstance(a, Revealed) and isinstance(b, Revealed)
    digested = isinstance(a, Digested) and isinstance(b, Digested)
    if (revealed or digested or a is None or b is None) and a != b:
        yield Difference(
            round, key, what, recorded_text(a) if a is not None else None, recorded_text(b) if b is not None else None
        )
