"""What a function may know of its call: its id, how far it has come, and the tickets it can issue."""

from collections.abc import Callable

from roundtrip.errors import BodyMistake
from roundtrip.machine.call import Call

__all__ = ["CallInfo"]


class CallInfo:
    """Which call this is, and how far it has come."""

    __slots__ = ("_call", "_issue")

    def __init__(self, call: Call, issue: Callable[[str, bool], str | None]) -> None:
        self._call = call
        self._issue = issue

    @property
    def id(self) -> str:
        """The call's id, the same on every leg."""
        return self._call.id

    @property
    def leg(self) -> int:
        """How many requests the call has had, this one included."""
        return self._call.leg

    @property
    def round(self) -> int:
        """How many rounds of questions the call has had."""
        return self._call.round

    def ticket(self, purpose: str, *, unbound: bool = False) -> str:
        """What to put into the URL of an `ElicitUrl`, so that the page finds the call and knows whose it is.

        It is signed, the same on every leg, good for this call and purpose, and ends with the call. The page hands it
        to `server.verify_ticket` with the principal of the browser in front of it.

        Args:
            purpose: What it is for, such as the question's name.
            unbound: Issue it although no user is known; then whoever has the link can use it.

        Raises:
            BodyMistake: No user is authenticated, or their access token has no subject, and `unbound` was not given.
        """
        ticket = self._issue(purpose, unbound)
        if ticket is None:
            raise BodyMistake(
                f"a ticket for {purpose!r} would be bound to nobody, as this request is not authenticated, or its "
                "access token has no subject and all users of its client look alike: whoever got the link could use "
                "it. Authenticate users, with a token verifier that gives AccessToken(subject=...) or with principal=, "
                "or say ticket(..., unbound=True)"
            )
        return ticket
