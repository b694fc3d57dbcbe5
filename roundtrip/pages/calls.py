"""Protocol between question pages and the calls behind them: open the page of a call, and answer its questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from roundtrip.pages.forms import OpenQuestions


@dataclass(frozen=True, slots=True)
class AskingPage:
    """The call waits for the answers to a round of questions."""

    round_id: str
    """A text that differs between the rounds of a call. It stays on the server."""
    questions: OpenQuestions


@dataclass(frozen=True, slots=True)
class WorkingPage:
    """The call goes on, and may ask again."""

    seconds: int = 3
    """The page loads itself again after this time."""


@dataclass(frozen=True, slots=True)
class AwaitingPage:
    """The call waits for a decision of people other than the reader."""

    groups: tuple[str, ...]
    seconds: int = 10
    """The page loads itself again after this time."""


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """Decision about a call, for the person who made the call."""

    message: str
    """The wording that was decided."""
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
    """There is nothing to answer at this address: it is unknown, expired, used, or another user's."""


PageState = AskingPage | WorkingPage | AwaitingPage | EndedPage | ClosedPage
"""The state of the call behind a page, for one reader."""


class CallsUnavailable(Exception):
    """The store of the calls cannot be used now."""


class PageCalls(Protocol):
    """The calls behind question pages."""

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return the state of the call that a ticket names, for a reader.

        Opening changes nothing, as browsers and mail scanners open addresses by themselves.

        Args:
            ticket: The secret in the address of the page.
            subject: The reader as `authenticate=` named them; None without it.

        Raises:
            CallsUnavailable: The store cannot be used.
        """
        ...

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Give a round its answers, at most once, and return True; return False if the round is no longer open.

        Args:
            ticket: The secret in the address of the page.
            subject: The reader.
            round_id: The round that was answered. Of two answers to the same round only one is taken.
            answers: Results of `elicitation/create` by the key of their question: an `action`, and for an accepted
                form its `content`. The content fits the schema, and was not checked by the author's type.

        Raises:
            CallsUnavailable: The store cannot be used. It is not known whether the answers were stored.
        """
        ...
