"""Settle the approvals of one leg. Decisions come with the stored call, and never from its client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from roundtrip.errors import BodyMistake, QuestionVolatile
from roundtrip.machine.facts import ApprovalRead
from roundtrip.questions.approvals import ApprovalQuestion
from roundtrip.questions.outcomes import Outcome

if TYPE_CHECKING:
    from roundtrip.engine.answers import Answers
    from roundtrip.engine.leg import Leg
    from roundtrip.questions.wire import PendingQuestion

_VOID: Final = "~~void-"
"""Prefix of the names of computed values: approvals that do not count, as a review has changed an answer."""
_VOLATILE_AFTER: Final = 3
"""Approvals that may be lost to a changed wording before it counts as volatile."""


def settle_approval(answers: Answers, names: tuple[str, ...], waiting: PendingQuestion) -> Outcome | None:
    """Return the outcome of an approval; None leaves it open.

    Raises:
        ApprovalRejected: It was rejected.
        ApprovalExpired: The time was over, and no value replaces it.
        QuestionVolatile: The wording changes on every leg.
    """
    key, question = waiting.key, cast("ApprovalQuestion", waiting.question)
    stand_in = answers.stand_in_for(names, question)
    if stand_in is not None:
        return answers.reuse(key, stand_in)
    known = answers.leg.approvals
    state = next((known.states[name] for name in names if name in known.states), None) if known is not None else None
    if state is not None and state.decision is not None:
        voided = _voided(answers, key)
        if state.pin == question.pin and state.id not in voided:
            if answers.leg.call.watch is not None:
                answers.leg.call.watch(ApprovalRead(key, question.by, state.decision))
            outcome = question.outcome_of(key, state.decision)
            if outcome is not None:
                answers.open.pop(key, None)
                return outcome
        elif sum(pin != question.pin and one not in voided for one, pin in state.approved) >= _VOLATILE_AFTER:
            raise QuestionVolatile(key, changed=["message"])
    answers.open[key] = waiting
    return None


async def replaced(answers: Answers, approvals: Sequence[PendingQuestion]) -> bool:
    """Replace approvals whose time is over by their `otherwise`; return False if there are none.

    Raises:
        ValueNotStorable: A value is neither JSON nor an approval.
    """
    over = [waiting for waiting in approvals if cast("ApprovalQuestion", waiting.question).is_over]
    for waiting in over:
        await answers.stand_in(waiting)
    return bool(over)


def check_approvals(leg: Leg, approvals: Sequence[PendingQuestion]) -> None:
    """Check that the call may wait for approvals.

    Raises:
        BodyMistake: The server has no inbox, or the call cannot wait for so long.
        CallerUnknown: The server does not know who must not decide.
    """
    known = leg.approvals
    for waiting in approvals:
        if known is None:
            raise BodyMistake(
                f"approval {waiting.key!r} needs an inbox; give the server approvals=Approvals(groups=...), and ask "
                "for approvals only in tools that clients call"
            )
        if known.refusal is not None:
            raise known.refusal(waiting.key)
        within = cast("ApprovalQuestion", waiting.question).within
        if within is not None and within > known.max_seconds:
            raise BodyMistake(
                f"approval {waiting.key!r}: within= must be at most {known.max_seconds:g} seconds, the age of this "
                f"call, got {within:g}; run the tool as a task, or give it a longer max_age= or task_ttl="
            )


def void(answers: Answers, stale: Iterable[str]) -> None:
    """Note that approvals no longer count, as a review has changed an answer before them."""
    known = answers.leg.approvals
    for name in stale:
        if known is not None and name in known.states:
            answers.computed.fix(f"{_VOID}{name}", [*_voided(answers, name), known.states[name].id])


def _voided(answers: Answers, name: str) -> list[str]:
    """Return the ids of the approvals of a name that do not count."""
    kept = answers.computed.values.get(f"{_VOID}{name}")
    return [] if kept is None else cast("list[str]", kept.value)
