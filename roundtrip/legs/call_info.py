"""Provide `ctx.call`: the id and the progress of a call, and tickets for its pages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from roundtrip.errors import BodyMistake
from roundtrip.machine.call import Call

if TYPE_CHECKING:
    from roundtrip.legs.requests import StoredLeg


class CallInfo:
    """Id and progress of a call."""

    __slots__ = ("_call", "_issue", "stored")

    def __init__(
        self, call: Call, issue: Callable[[str, bool], str | None], *, stored: "StoredLeg | None" = None
    ) -> None:
        self._call = call
        self._issue = issue
        self.stored = stored
        """The leg of the stored call that this call is."""

    @property
    def id(self) -> str:
        """Return the call's id, the same on every leg."""
        return self._call.id

    @property
    def leg(self) -> int:
        """Return the number of the call's requests, this one included."""
        return self._call.leg

    @property
    def round(self) -> int:
        """Return the number of the call's rounds of questions."""
        return self._call.round

    def ticket(self, purpose: str, *, unbound: bool = False) -> str:
        """Issue a ticket for the URL of an `ElicitUrl`, by which the page finds the call and its user.

        The ticket is signed, the same on every leg, valid for this call and purpose, and ends with the call. The page
        passes it to `server.verify_ticket`, with the principal of its browser.

        Args:
            purpose: The use of the ticket, such as the question's name.
            unbound: Issue it although no user is known; then everyone who has the link can use it.

        Raises:
            BodyMistake: No user is authenticated, or their access token has no subject, and `unbound` was not given.
        """
        ticket = self._issue(purpose, unbound)
        if ticket is None:
            raise BodyMistake(
                f"a ticket for {purpose!r} must be bound to a user, but this request is not authenticated, or its "
                "access token has no subject, so that all users of its client look alike: everyone who got the link "
                "could use it. Authenticate users, with a token verifier that gives AccessToken(subject=...) or with "
                "principal=, or say ticket(..., unbound=True)"
            )
        return ticket
