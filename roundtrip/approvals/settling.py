"""Settle the approvals of one leg. Decisions come with the stored call, and never from its client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

from roundtrip.approvals.markers import Approval, ApprovalQuestion
from roundtrip.errors import ApprovalExpired, ApprovalRejected, BodyMistake, CallerUnknown, QuestionVolatile
from roundtrip.machine.facts import ApprovalRead
from roundtrip.questions.markers import NOTHING
from roundtrip.questions.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from roundtrip.engine.computed import ComputedValues
    from roundtrip.errors import Decision
    from roundtrip.questions.wire import PendingQuestion

_VOID: Final = "~~void-"
"""Prefix of the names of computed values: approvals that do not count, as a review has changed an answer."""
_VOLATILE_AFTER: Final = 3
"""Approvals that may be lost to a changed wording before it counts as volatile."""


class ApprovalState(NamedTuple):
    """State of an approval that was asked for on an earlier leg."""

    id: str
    pin: str
    """The digest of its wording."""
    decision: Decision | None
    after: frozenset[str] = frozenset()
    """The names of the questions that were answered when it was opened."""
    approved: tuple[tuple[str, str], ...] = ()
    """The ids and pins of all approvals of this name that were given."""


@dataclass(frozen=True, slots=True)
class ApprovalSettler:
    """Settler of the approvals of one call."""

    states: Mapping[str, ApprovalState]
    """The latest approval of each name."""
    max_seconds: float
    """The most seconds that an approval may wait."""
    knows_caller: bool = True
    """False if the server does not know who must not decide."""
    kind: ClassVar = ApprovalQuestion

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Implement `Settler.settle`.

        Raises:
            ApprovalRejected: It was rejected.
            ApprovalExpired: The time was over, and no value replaces it.
            QuestionVolatile: The wording changes on every leg.
        """
        key, question = waiting.key, cast("ApprovalQuestion", waiting.question)
        state = next((self.states[name] for name in waiting.names if name in self.states), None)
        if state is None or state.decision is None:
            return None
        voided = _voided(key, computed)
        if state.pin == question.pin and state.id not in voided:
            if computed.watch is not None:
                computed.watch(ApprovalRead(key, question.by, state.decision))
            return _outcome_of(waiting, state.decision)
        if sum(pin != question.pin and one not in voided for one, pin in state.approved) >= _VOLATILE_AFTER:
            raise QuestionVolatile(key, changed=["message"])
        return None

    def check(self, waiting: PendingQuestion) -> None:
        """Implement `Settler.check`.

        Raises:
            BodyMistake: The call cannot wait for so long.
            CallerUnknown: The server does not know who must not decide.
        """
        if not self.knows_caller:
            raise CallerUnknown(waiting.key)
        within = cast("ApprovalQuestion", waiting.question).within
        if within is not None and within > self.max_seconds:
            raise BodyMistake(
                f"approval {waiting.key!r}: within= must be at most {self.max_seconds:g} seconds, the age of this "
                f"call, got {within:g}; run the tool as a task, or give it a longer max_age= or task_ttl="
            )

    def opened_after(self, changed: Set[str]) -> list[str]:
        """Implement `Settler.opened_after`."""
        return [name for name, state in self.states.items() if state.after & changed]

    def void(self, stale: Iterable[str], computed: ComputedValues) -> None:
        """Implement `Settler.void`."""
        for name in stale:
            if name in self.states:
                computed.fix(f"{_VOID}{name}", [*_voided(name, computed), self.states[name].id])


def _outcome_of(waiting: PendingQuestion, decision: Decision) -> Outcome | None:
    if decision.outcome == "approved" and decision.who is not None:
        return Outcome(Approval(decision.who, decision.when, decision.reason))
    if decision.outcome == "rejected":
        raise ApprovalRejected(waiting.key, decision)
    if waiting.question.fallback is NOTHING:
        raise ApprovalExpired(waiting.key, decision)
    waiting.is_over = True
    return None


def _voided(name: str, computed: ComputedValues) -> list[str]:
    """Return the ids of the approvals of a name that do not count."""
    kept = computed.values.get(f"{_VOID}{name}")
    return [] if kept is None else cast("list[str]", kept.value)
