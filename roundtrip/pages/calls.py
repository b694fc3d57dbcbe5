"""Protocol between question pages and their calls: read a call's state, and answer its questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from roundtrip.pages.forms import OpenQuestions


@dataclass(frozen=True, slots=True)
class AskingPage:
    """The call waits for the answers to a round of questions."""

    round_id: str
    """A text that is different for each round of a call. It stays on the server."""
    questions: OpenQuestions


@dataclass(frozen=True, slots=True)
class WorkingPage:
    """The call is running, and may ask again."""

    seconds: int = 3
    """The page reloads after this time."""


@dataclass(frozen=True, slots=True)
class AwaitingPage:
    """The call waits for a decision by other people than the reader."""

    groups: tuple[str, ...]
    seconds: int = 10
    """The page reloads after this time."""


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """Decision about a call, for the caller's page."""

    message: str
    """The wording that the group decided on."""
    by: str
    """The group."""
    outcome: Literal["approved", "rejected", "expired"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EndedPage:
    """The call has ended."""

    text: str | None = None
    """The result, for readers who may see it."""
    is_error: bool = False
    decisions: tuple[ShownDecision, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedPage:
    """There is nothing to answer at this address: it is unknown, expired, already used, or belongs to another user."""


PageState = AskingPage | WorkingPage | AwaitingPage | EndedPage | ClosedPage
"""What one reader of a page may see about its call."""


class CallsUnavailable(Exception):
    """The call store cannot be used now."""


class PageCalls(Protocol):
    """Calls that question pages show."""

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return the state of a ticket's call for one reader.

        Opening a page changes nothing, because browsers and mail scanners open addresses on their own.

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
            round_id: The round that was answered. If a round is answered twice, only one submission takes effect.
            answers: Results of `elicitation/create` by question key: an `action`, and the `content` of an accepted
                form. The
                content fits the schema, but was not checked against the author's type.

        Raises:
            CallsUnavailable: The store cannot be used. It is not known whether the answers were stored.
        """
        ...
