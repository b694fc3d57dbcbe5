"""Provide `Approvals`, the settings of a server's approvals, and `PendingApproval`, which its functions receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from roundtrip.errors import Decision


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
