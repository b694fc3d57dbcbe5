"""Approval markers and settings. An approval is a question that a member of a group decides in the server's inbox.

Decisions are stored with the call. They never come from a client.
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
"""Name prefix of the computed values that list voided approvals. A review that changes an answer voids later approvals.
"""
_VOLATILE_AFTER: Final = 3
"""How many approvals a changed wording may invalidate before the wording counts as volatile."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Approval that a person gave."""

    who: str
    when: datetime
    reason: str | None = None


class Approve(ExternalMarker[Approval]):
    """Ask a group to approve. The consumer receives the `Approval`.

    While the call waits in the server's store, it occupies no thread, worker or connection. Callers cannot decide their
    own calls. A rejection raises `ApprovalRejected`.

    Args:
        message: The wording to approve. A changed wording needs a new approval.
        by: The group, as named in `Approvals(groups=...)`.
        within: How long the approval waits before it raises `ApprovalExpired`, in seconds or as a `timedelta`. By
            default, it waits as long as the call lives. A call that is not a task cannot wait longer than its
            `max_age`.
        remind: The interval, in seconds or as a `timedelta`, at which `Approvals(on_pending=...)` is called again until
            the approval is decided.
        fallback: The value to use when the time has run out, or a function that returns it. The value must be JSON or
            an `Approval`.

    Raises:
        ValueError: A time or a text is out of range.

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
                raise TypeError(f"Approve({name}=...) must be text, got {type(given).__name__}")
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
        """Return the approval as a question."""
        return ApprovalQuestion(self)

    @override
    def worded(self, message: str) -> Approve:
        """Return a copy of the approval with another message."""
        return Approve(message, by=self.by, within=self.within, remind=self.remind, fallback=self.fallback)


def seconds_of(given: float | timedelta, name: str, *, least: float = 0.0) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: The value is not a duration, or is too short.
    """
    seconds: Any = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least <= seconds < math.inf or not seconds:
        rule = "more than 0" if not least else f"at least {least:g}"
        raise ValueError(f"Approve({name}=...) must be seconds or a timedelta, and {rule}, got {given!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """Pending approval, with the details for a mail or chat message about it."""

    id: str
    """The approval's id in the API."""
    message: str
    by: str
    """The group that decides."""
    tool: str
    caller: str
    """The person whose client made the call. This person must not decide."""
    opened: datetime
    until: datetime
    """The time at which the approval expires."""
    url: str
    """The address of a page on which people decide after they log in."""
    number: int = 1
    """The number of this notification, counted from 1."""

    @property
    def is_reminder(self) -> bool:
        """Return True if the group was notified before."""
        return self.number > 1


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Server settings for approvals: `Server(approvals=Approvals(groups=...))`.

    Args:
        groups: A function that returns the groups that a person belongs to, or a mapping from persons to groups. A
            person is the value that `Pages(authenticate=...)` returns: a text, or an access token.
        on_pending: Called with a `PendingApproval` when an approval opens, and again for each reminder. Only one
            instance calls it, at most once for each notification. It may be asynchronous. Its exceptions are logged.
        on_decided: Called with a `PendingApproval` and its `Decision`, under the same rules as `on_pending`.
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
            raise TypeError(
                'Approvals(groups=...) must map each person to a list of groups, as in {"fay": ["finance"]}'
            )


class ApprovalQuestion(ExternalQuestion):
    """Approval as a question. It is never sent to the client."""

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
                raise AnswerInvalid("it replaces an approval that has a different wording")

    @override
    def plain(self, value: Any) -> Any:
        if isinstance(value, Approval):
            return {"kind": "approval", "value": _APPROVAL.dump_python(value, mode="json"), "pin": self.pin}
        plain = _ANY.dump_python(value, mode="json")
        # The value must survive a round trip through JSON, because every leg must see the same value.
        if plain != value:
            raise ValueError("it is not JSON")
        return {"kind": "value", "value": plain, "pin": self.pin}


_APPROVAL: TypeAdapter[Approval] = TypeAdapter(Approval)


class ApprovalState(NamedTuple):
    """State of an approval that an earlier leg requested."""

    id: str
    pin: str
    """The digest of the wording."""
    decision: Decision | None
    after: frozenset[str] = frozenset()
    """The names of the questions that had already been answered when the approval opened."""
    approved: tuple[tuple[str, str], ...] = ()
    """The id and the pin of each approval that a person gave under this name."""


@dataclass(frozen=True, slots=True)
class ApprovalSettler:
    """Settler for the approvals of one call."""

    states: Mapping[str, ApprovalState]
    """The latest approval state under each name."""
    max_seconds: float
    """Maximum number of seconds that an approval may wait."""
    knows_caller: bool = True
    """False if the server does not know the caller. Then no approval can be requested, because nothing would keep
    callers from deciding their own calls.
    """
    kind: ClassVar = ApprovalQuestion

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Implement `Settler.settle`.

        Raises:
            ApprovalRejected: The approval was rejected.
            ApprovalExpired: The approval expired and has no fallback.
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
            BodyMistake: The approval may wait longer than the call may live.
            CallerUnknown: The server does not know the caller, and so cannot keep the caller from deciding.
        """
        if not self.knows_caller:
            raise CallerUnknown(waiting.key)
        within = cast("ApprovalQuestion", waiting.question).within
        if within is not None and within > self.max_seconds:
            raise BodyMistake(
                f"approval {waiting.key!r}: within= must not exceed its call's lifetime of {self.max_seconds:g} s, "
                f"got {within:g}; run the tool as a task, or give it a longer max_age= or task_ttl="
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
    """Return the ids of the voided approvals under a name."""
    stored = computed.values.get(f"{_VOID}{name}")
    return [] if stored is None else cast("list[str]", stored.value)
