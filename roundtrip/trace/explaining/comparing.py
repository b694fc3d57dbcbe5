"""Comparison of two calls, by round and question. Times and instances are ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from roundtrip.trace.explaining.stories import outcome_of
from roundtrip.trace.explaining.wording import recorded_text
from roundtrip.trace.reading.calls import Round, TracedCall
from roundtrip.trace.writing.lines import Digested, ReadAnswer, Recorded, Revealed, ShownQuestion

_TEXTS: Final = ("message", "form", "url", "complaint")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two calls. `a` and `b` are the two texts that differ; None if a call has no such text."""

    round: int | None
    """None if the difference concerns the whole call."""
    key: str | None
    """The question's name; None if the difference concerns a whole round or a whole call."""
    what: str
    a: str | None
    b: str | None


def compare(a: TracedCall, b: TracedCall) -> list[Difference]:
    """Return the differences in this order: tools and arguments, each round, paths, results.

    A value is not compared if only one transcript reveals it. Digests can be compared only if both were made with the
    same key.
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
        if one is not None and other is not None:
            yield from _unequal("asked by", one.asked.by, other.asked.by, round=number)
        mine, theirs = _questions_of(one), _questions_of(other)
        common = [", ".join(key for key in keys if key in others) for keys, others in ((mine, theirs), (theirs, mine))]
        yield from _unequal("order", *common, round=number)
        for key in mine | theirs:
            yield from _question(number, key, mine.get(key), theirs.get(key))
            if one is not None and other is not None and key in mine and key in theirs:
                yield from _answers(number, key, _answer(one, key), _answer(other, key))
        if one is not None and other is not None and _same_era(a, b):
            reused = [", ".join(sorted(round_.asked.reused)) or None for round_ in (one, other)]
            yield from _unequal("reused", *reused, round=number)


def _question(number: int, key: str, mine: ShownQuestion | None, theirs: ShownQuestion | None) -> Iterator[Difference]:
    if mine is None or theirs is None:
        yield from _unequal("question", _question_text(mine), _question_text(theirs), round=number, key=key)
        return
    yield from _unequal("kind", mine.kind, theirs.kind, round=number, key=key)
    yield from _unequal("reason", mine.reason.value, theirs.reason.value, round=number, key=key)
    for name in _TEXTS:
        yield from _values(name, getattr(mine, name), getattr(theirs, name), round=number, key=key)


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
        yield from _unequal("error", one.error_type, other.error_type)
        if one.error is not None and other.error is not None and one.error.type == other.error.type:
            yield from _values("error", one.error.text, other.error.text)


def _same_era(a: TracedCall, b: TracedCall) -> bool:
    """Return True if both calls have the same era, or one era is unknown. Only in the retry era are bodies repeated and
    answers reused.
    """
    return a.began is None or b.began is None or a.began.era == b.began.era


def _rounds_of(call: TracedCall) -> list[Round]:
    counted = {id(serving) for serving in call.chain}
    return [round_ for round_ in call.rounds if id(round_.serving) in counted]


def _path(call: TracedCall) -> str:
    return " → ".join(state for serving in call.chain for _, state, _ in serving.moves)


def _bodies(call: TracedCall) -> str:
    return str(sum(serving.bodies for serving in call.chain))


def _questions_of(round_: Round | None) -> dict[str, ShownQuestion]:
    return {question.key: question for question in round_.asked.questions} if round_ is not None else {}


def _answer(round_: Round, key: str) -> ReadAnswer | None:
    return next((answer for answer in round_.answers if answer.key == key), None)


def _question_text(question: ShownQuestion | None) -> str | None:
    if question is None:
        return None
    message = f": {recorded_text(question.message)}" if question.message is not None else ""
    return f"asked ({question.reason.value}){message}"


def _answer_text(answer: ReadAnswer | None) -> str | None:
    if answer is None:
        return None
    return f"{outcome_of(answer)} {recorded_text(answer.data) if answer.data is not None else ''}".rstrip()


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
        texts = [recorded_text(value) if value is not None else None for value in (a, b)]
        yield Difference(round, key, what, *texts)
