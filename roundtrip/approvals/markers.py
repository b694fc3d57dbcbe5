"""Provide approvals: questions that a person of a group decides in the server's inbox, and no client; their settings.

Decisions come with the stored call, and never from its client.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, cast

from pydantic import TypeAdapter
from typing_extensions import override

from roundtrip.errors import ApprovalExpired, ApprovalRejected, BodyMistake, CallerUnknown, Decision, QuestionVolatile
from roundtrip.machine.facts import ApprovalRead
from roundtrip.machine.journal import Action
from roundtrip.machine.pins import digest
from roundtrip.questions.forms import AnswerInvalid
from roundtrip.questions.markers import NOTHING, ExternalMarker
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.wire import ExternalQuestion, PendingQuestion

if TYPE_CHECKING:
    from roundtrip.engine.computed import ComputedValues

_MIN_REMIND_SECONDS = 1.0
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_VOID: Final = "~~void-"
"""Prefix of the names of computed values: approvals that do not count, as a review has changed an answer."""
_VOLATILE_AFTER: Final = 3
"""Approvals that may be lost to a changed wording before it counts as volatile."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Approval that a person has given."""

    who: str
    when: datetime
    reason: str | None = None


class Approve(ExternalMarker[Approval]):
    """Ask the people of a group to approve. The consumer receives the `Approval`.

    The call waits in the server's store, and holds no thread, worker or connection. Callers cannot decide their own
    calls. A rejection raises `ApprovalRejected`.

    Args:
        message: The wording that is approved. Another wording needs another approval.
        by: The group, as `Approvals(groups=...)` names it.
        within: Seconds, or a `timedelta`, after which it raises `ApprovalExpired`. By default as long as the call may
            live. A call that is not a task cannot wait longer than its `max_age`.
        remind: Seconds, or a `timedelta`, after which `Approvals(on_pending=...)` is called again, and again.
        fallback: The value, or a function that makes it, if the time is over. It must be JSON or an `Approval`.

    Raises:
        ValueError: A time or a text is out of its range.

    Example:
        ```python
        def approved(order: str, amount: int) -> Approve:
            return Approve(f"Refund {amount} for {order}?", by="finance", within=timedelta(hours=1))
        ```
    """

    outcome_type = Approval
    max_chars = 10_000

    def __init__(
        self,
        message: str,
        *,
        by: str,
        within: float | timedelta | None = None,
        remind: float | timedelta | None = None,
        fallback: Any = NOTHING,
    ) -> None:
        for name, given in (("message", message), ("by", by)):
            if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"Approve({name}=...) must be a text, got {type(given).__name__}")
            if not given.strip():
                raise ValueError(f"Approve({name}=...) must not be empty")
            if len(given) > self.max_chars:
                raise ValueError(
                    f"Approve({name}=...) must have at most {self.max_chars} characters, got {len(given)}; "
                    "people have to read it"
                )
        self.message = message
        self.by = by
        self.within = None if within is None else seconds_of(within, "within")
        self.remind = None if remind is None else seconds_of(remind, "remind", least=_MIN_REMIND_SECONDS)
        self.fallback = fallback

    @override
    def question(self) -> ApprovalQuestion:
        """Return it as a question."""
        return ApprovalQuestion(self)

    @override
    def worded(self, message: str) -> Approve:
        """Return the same approval with another message."""
        return Approve(message, by=self.by, within=self.within, remind=self.remind, fallback=self.fallback)


def seconds_of(given: float | timedelta, name: str, *, least: float = 0.0) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is not a duration, or too short.
    """
    seconds: Any = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least <= seconds < math.inf or not seconds:
        rule = "more than 0" if not least else f"at least {least:g}"
        raise ValueError(f"Approve({name}=...) must be seconds or a timedelta, and {rule}, got {given!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """Approval that waits for a decision, for a mail or a chat."""

    id: str
    """Its id for the API."""
    message: str
    by: str
    """The group that decides."""
    tool: str
    caller: str
    """The person whose client made the call, who must not decide."""
    opened: datetime
    until: datetime
    """The time after which it expires."""
    url: str
    """The page on which it is decided, by people who are logged in."""
    number: int = 1
    """The number of this notification: 1 for the first one."""

    @property
    def is_reminder(self) -> bool:
        """Return True if the group was notified of it before."""
        return self.number > 1


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Settings of a server's approvals: `Server(approvals=Approvals(groups=...))`.

    Args:
        groups: Returns the groups for which a person decides; or a mapping. It receives the person as
            `Pages(authenticate=...)` returns them: a text, or an access token.
        on_pending: Is called with a `PendingApproval` when one waits, and again for each reminder: at most once each,
            by one of all instances. It may be asynchronous; an error of it is logged.
        on_decided: Is called with a `PendingApproval` and its `Decision`, in the same way.
    """

    groups: Mapping[str, Collection[str]] | Callable[[Any], Iterable[str] | Awaitable[Iterable[str]]]
    on_pending: Callable[[PendingApproval], object] | None = None
    on_decided: Callable[[PendingApproval, Decision], object] | None = None

    def __post_init__(self) -> None:
        groups: Any = self.groups
        if not isinstance(groups, Mapping) and not callable(groups):
            raise TypeError(f"Approvals(groups=...) must be a function or a mapping, got {type(groups).__name__}")
        of_each = cast("Mapping[str, object]", groups).values() if isinstance(groups, Mapping) else ()
        if any(isinstance(one, str) for one in of_each):
            raise TypeError('Approvals(groups=...) maps each person to a list of groups: {"fay": ["finance"]}')


class ApprovalQuestion(ExternalQuestion):
    """Approval, as a question that has no form on the wire."""

    __slots__ = ("pin", "remind", "within")

    def __init__(self, marker: Approve) -> None:
        super().__init__(marker, marker.message, digest(f"{marker.by}\0{marker.message}"), digest("approval"))
        self.by = marker.by
        self.within = marker.within
        self.remind = marker.remind
        self.pin = self.message.hex()

    @override
    def no_settler(self, key: str) -> BodyMistake:
        return BodyMistake(
            f"approval {key!r} needs an inbox; give the server approvals=Approvals(groups=...), and ask for approvals "
            "only in tools that clients call"
        )

    @override
    def restore(self, action: Action, data: Any) -> Outcome:
        match data:
            case {"pin": self.pin, "kind": "value", "value": value}:
                return Outcome(value)
            case {"pin": self.pin, "kind": "approval", "value": value}:
                return Outcome(_APPROVAL.validate_python(value))
            case _:
                raise AnswerInvalid("it replaces an approval of another wording")

    @override
    def plain(self, value: Any) -> Any:
        if isinstance(value, Approval):
            return {"kind": "approval", "value": _APPROVAL.dump_python(value, mode="json"), "pin": self.pin}
        plain = _ANY.dump_python(value, mode="json")
        # It must be the same on all legs.
        if plain != value:
            raise ValueError("it is not JSON")
        return {"kind": "value", "value": plain, "pin": self.pin}


_APPROVAL: TypeAdapter[Approval] = TypeAdapter(Approval)


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
