"""Attacks on apps: requests that a hostile host or view makes from an honest answer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roundtrip.pages.forms import DECISION
from roundtrip.testing.attacks.answers import NOT_ASKED
from roundtrip.testing.attacks.states import tampered

_GARBAGE: Final[tuple[tuple[str, Any], ...]] = (
    ("null", None),
    ("a number", 1.5),
    ("true", True),
    ("a list", ["x"]),
    ("an object", {"x": "x"}),
    ("an unknown text", NOT_ASKED),
    ("a long text", "x" * 300_000),
)


@dataclass(frozen=True, slots=True)
class AppAttack:
    """One hostile request."""

    description: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments that differ from the honest request."""
    opens: bool = True
    """False if the ticket does not open any call for this caller."""
    is_foreign: bool = False
    """True if another user sends the request."""


def bad_tickets(ticket: str) -> Iterator[AppAttack]:
    """Yield requests whose ticket does not open a call."""
    changed = (*tampered(ticket), *((f"{what} in its place", garbage) for what, garbage in _GARBAGE))
    yield from (AppAttack(f"a ticket with {what}", {"ticket": other}, opens=False) for what, other in changed)


def other_rounds(earlier: Iterable[Mapping[str, Any]]) -> Iterator[AppAttack]:
    """Yield repeated answers, and answers to rounds that do not exist."""
    yield from (AppAttack("an answer that was sent before", arguments) for arguments in earlier)
    yield from (AppAttack(f"{what} as a round", {"round": garbage}) for what, garbage in _GARBAGE)


def broken_answers(answers: Mapping[str, list[str]]) -> Iterator[AppAttack]:
    """Yield answers that the form cannot send."""
    button = answers.get(DECISION, [])
    broken: dict[str, Any] = {f"{what} as the answers": garbage for what, garbage in _GARBAGE}
    broken["an answer to an unknown control"] = {**answers, NOT_ASKED: ["x"]}
    broken["no button"] = {name: texts for name, texts in answers.items() if name != DECISION}
    broken["an unknown button"] = {**answers, DECISION: [NOT_ASKED]}
    broken["a button twice"] = {**answers, DECISION: button * 2}
    broken["a text instead of a list"] = {**answers, DECISION: "answer"}
    broken["a number instead of a text"] = {**answers, DECISION: [1]}
    for name in answers:
        question, _, control = name.partition("-")
        # If a question is declined, its other texts do not matter.
        if button == ["answer"] and control not in ("", "choice") and answers.get(f"{question}-choice") != ["no"]:
            broken[f"a text that the control {name} cannot send"] = {**answers, name: ["\0"]}
    yield from (AppAttack(what, {"answers": changed}) for what, changed in broken.items())
