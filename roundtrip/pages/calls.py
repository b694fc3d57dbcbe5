"""Protocol between question pages and the calls that they show: read a call's state, and answer its questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from roundtrip.pages.forms import OpenQuestions


@dataclass(frozen=True, slots=True)
class AskingPage:
    """Call that waits for the answers to a round."""

    round_id: str
    """A text that identifies a round of the call. It stays on the server."""
    questions: OpenQuestions


@dataclass(frozen=True, slots=True)
class WorkingPage:
    """Call that is running, and may ask again."""

    seconds: int = 3
    """How many seconds pass before the page reloads."""
    needs_client: bool = False
    """True if the call goes on only with its client's next request."""


@dataclass(frozen=True, slots=True)
class AwaitingPage:
    """Call that waits for other people to decide. The page's reader cannot decide."""

    groups: tuple[str, ...]
    seconds: int = 10
    """How many seconds pass before the page reloads."""


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """Decision that the caller's page shows."""

    message: str
    """The wording of the approval that was decided."""
    by: str
    """The group that decided."""
    outcome: Literal["approved", "rejected", "expired"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EndedPage:
    """Call that has ended."""

    text: str | None = None
    """The result, for readers who may see it."""
    is_error: bool = False
    decisions: tuple[ShownDecision, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedPage:
    """Address with nothing to answer: it is unknown, expired, already used, or belongs to another user."""


PageState = AskingPage | WorkingPage | AwaitingPage | EndedPage | ClosedPage
"""The part of a call's state that one reader may see."""


class CallsUnavailable(Exception):
    """The call store cannot be used now."""


class PageCalls(Protocol):
    """Calls that question pages show."""

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return the state of a ticket's call for one reader.

        Opening a page changes nothing, because browsers and mail scanners may open addresses without their users.

        Args:
            ticket: The secret in the page address.
            subject: The reader that `authenticate=` returned, or None without `authenticate=`.

        Raises:
            CallsUnavailable: The store cannot be used.
        """
        ...

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Answer a round, at most once. Return False if the round is no longer open.

        Args:
            ticket: The secret in the page address.
            subject: The reader.
            round_id: The answered round. If its answers are sent twice, only one submission takes effect.
            answers: Results of `elicitation/create` by question key. Each has an `action`, and the `content` of an
                accepted form. The content fits the schema, but has not been checked against the author's type.

        Raises:
            CallsUnavailable: The store cannot be used. It is not known whether the answers were stored.
        """
        ...
