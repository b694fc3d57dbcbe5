"""Protocol between the pages of the inbox and the approvals behind them: list, show and decide them."""

from typing import Any, Literal, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response

Choice = Literal["approved", "rejected"]


class Reader(NamedTuple):
    """Person who reads the inbox."""

    principal: str
    """The person, in the form of the server's principals."""
    name: str
    groups: frozenset[str]


class ShownApproval(NamedTuple):
    """Approval as its group sees it."""

    id: str
    message: str
    by: str
    tool: str
    caller: str
    opened: float
    until: float
    pin: str
    """The digest of its wording, which a form must have been shown for."""
    state: Literal["pending", "approved", "rejected", "expired", "closed"] = "pending"
    who: str | None = None
    when: float | None = None
    reason: str | None = None
    tells_caller: bool = False
    """True if the caller has a page that shows the decision and its reason."""


class InboxPage(NamedTuple):
    """Some of the approvals that wait for the groups of a reader, the oldest first."""

    approvals: list[ShownApproval]
    following: str | None
    """The mark of the next page; None for the last one."""


class InboxApprovals(Protocol):
    """The approvals behind the inbox. Each method hides what the reader must not decide.

    All methods but `reader` raise `CallsUnavailable` while the store cannot be used.
    """

    async def reader(self, request: Request) -> Reader | Response | None:
        """Return the person of a request; or the response of a login; or None."""
        ...

    async def page(self, reader: Reader, after: str | None) -> InboxPage:
        """Return a page of pending approvals: the first one, or the one behind a mark.

        Raises:
            ValueError: The mark is not one of this inbox.
        """
        ...

    async def find(self, reader: Reader, approval_id: str) -> ShownApproval | None:
        """Return an approval of the reader's groups; None if it is unknown, another group's, or of their own call."""
        ...

    async def decide(self, reader: Reader, approval_id: str, pin: str | None, choice: Choice, reason: str) -> Any:
        """Decide a pending approval, once; return it, or None as `find` does, and False if it no longer waits.

        Args:
            reader: The person.
            approval_id: Its id.
            pin: The digest of the wording that the person saw; None if they name the id alone.
            choice: The decision.
            reason: The reason; may be empty.
        """
        ...
