"""Provide `ctx.call`: the id and the progress of a call, and tickets for its pages."""

from collections.abc import Awaitable, Callable

from roundtrip.errors import BodyMistake
from roundtrip.machine.call import Call


class CallInfo:
    """Id and progress of a call."""

    __slots__ = ("_call", "_issue", "task")

    def __init__(self, call: Call, issue: Callable[[str, bool], str | None], *, task: "TaskInfo | None" = None) -> None:
        self._call = call
        self._issue = issue
        self.task = task
        """The task that the call is."""

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


class TaskInfo:
    """Task of a running body: `ctx.task`."""

    def __init__(self, task_id: str, say: Callable[[str], Awaitable[None]]) -> None:
        self._say = say
        self.id = task_id
        """The id by which the client knows the task."""

    async def status(self, message: str) -> None:
        """Set the message that clients see with the status of the task. Quick changes are written once."""
        await self._say(message)
