"""Work for the benchmarked tools, defined once so that every peer does the same."""

import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pydantic import BaseModel

from benchmarks.prose import prose

TOOL: Final = "work"
"""The name under which every peer registers the called tool."""

KEY: Final = b"k" * 32
"""One key for every peer, so that none has cheaper protection by accident."""

ARGUMENTS: Final = {"name": "Ada"}
"""Every call has an argument, like real ones: servers then look up the tool's schema before anything else."""

CONSENT_MESSAGE: Final = "0: really?"
"""The one yes-or-no question."""

DRAFT_MESSAGE: Final = "0: write a report"
"""The request to the client's model."""

_LONG_ANSWER: Final = 40
_DRAFT: Final = 20_000


class Word(BaseModel):
    """Form with free text."""

    text: str


class Consent(BaseModel):
    """Form with yes or no."""

    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A call and everything that must be true about it, on every server."""

    text: str
    """The finished call's text."""
    messages: tuple[tuple[str, ...], ...] = ()
    """Each round's questions. Each starts with its number."""
    answers: tuple[str | bool, ...] = ()
    """The scripted client's answers, by question number."""
    in_threads: bool = False
    """True if the functions are plain `def`, which servers run in worker threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(Workload):
    """Answer at once, on a server that has `tools` tools."""

    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Workload):
    """Run `count` independent resolvers that take `seconds` each and ask nothing."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm(Workload):
    """Ask one yes-or-no question, then answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Workload):
    """Ask free-text questions round by round. Each question depends on every answer in the previous round."""

    rounds: tuple[int, ...]
    once: bool = False
    """True if the resolver of an answered question does not run again on later legs (`remember=True`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Workload):
    """Request a long text from the client's model, then ask `questions` free-text questions, one after another."""

    questions: int


_W = TypeVar("_W", bound=Workload)


def threaded(workload: _W) -> _W:
    """Return the same call with plain `def` functions."""
    return replace(workload, in_threads=True)


def plain(*, tools: int = 1) -> Plain:
    """Return a call that needs only its argument."""
    return Plain(text=result_text(ARGUMENTS["name"], ["hello"]), tools=tools)


def compute(count: int, *, seconds: float) -> Compute:
    """Return a call whose tool gets values from `count` resolvers."""
    return Compute(text=result_text(ARGUMENTS["name"], map(computed, range(count))), count=count, seconds=seconds)


def confirm() -> Confirm:
    """Return a call that asks for consent."""
    return Confirm(text=result_text(ARGUMENTS["name"], [str(True)]), messages=((CONSENT_MESSAGE,),), answers=(True,))


def words(*rounds: int, long: bool = False, once: bool = False) -> Words:
    """Return a call that asks `rounds[0]` questions, then `rounds[1]` that depend on them, and so on."""
    messages: list[tuple[str, ...]] = []
    answers: list[str] = []
    latest: list[str] = []
    for size in rounds:
        numbers = range(len(answers), len(answers) + size)
        messages.append(tuple(word_message(number, latest) for number in numbers))
        latest = [_long_answer(number) if long else f"word-{number:03d}" for number in numbers]
        answers += latest
    return Words(
        text=result_text(ARGUMENTS["name"], latest),
        messages=tuple(messages),
        answers=tuple(answers),
        rounds=rounds,
        once=once,
    )


def draft(questions: int) -> Draft:
    """Return a call that starts with a sampled text of 20 kB."""
    text = prose(_DRAFT)
    answers = [text, *(f"word-{number:03d}" for number in range(1, questions + 1))]
    messages = [DRAFT_MESSAGE]
    messages += [word_message(number, answers[number - 1 : number]) for number in range(1, questions + 1)]
    return Draft(
        text=result_text(ARGUMENTS["name"], [str(len(text)), answers[-1]]),
        messages=tuple((message,) for message in messages),
        answers=tuple(answers),
        questions=questions,
    )


def word_message(number: int, before: Sequence[str]) -> str:
    """Word question `number` so that it shows a lost or swapped answer in the previous round."""
    return f"{number}: which word follows {'-'.join(answer[-3:] for answer in before) or 'nothing'}?"


def result_text(name: str, findings: Iterable[str]) -> str:
    """Return a tool's result: its argument and its findings."""
    return f"{name}: {' '.join(findings)}"


def computed(number: int) -> str:
    """Return the value from resolver `number`."""
    return f"value-{number}"


def _long_answer(number: int) -> str:
    """Return forty characters without a pattern, which compression hardly shortens."""
    rng = random.Random(number)
    return "".join(rng.choices(string.ascii_letters + string.digits, k=_LONG_ANSWER))
