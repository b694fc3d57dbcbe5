"""Provide approvals: questions that a person of a group decides in the server's inbox, and no client."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import override

from roundtrip.errors import BodyMistake
from roundtrip.machine.journal import Action
from roundtrip.machine.pins import digest
from roundtrip.questions.forms import AnswerInvalid
from roundtrip.questions.markers import NOTHING, ExternalMarker
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.wire import ExternalQuestion

_MIN_REMIND_SECONDS = 1.0
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


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
    def question(self) -> "ApprovalQuestion":
        """Return it as a question."""
        return ApprovalQuestion(self)

    @override
    def worded(self, message: str) -> "Approve":
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
