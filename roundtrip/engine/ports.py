"""Ports of the engine: what a leg needs of its client, and of those who answer in the client's place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from mcp_types import ClientCapabilities, InputRequest, InputResponse
    from pydantic import BaseModel

    from roundtrip.engine.computed import ComputedValues
    from roundtrip.questions.outcomes import Outcome
    from roundtrip.questions.wire import PendingQuestion


class Client(Protocol):
    """Client of one request, with everything that asking it needs."""

    @property
    def protocol_version(self) -> str | None:
        """Return the negotiated revision; None without a request."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the capabilities that it declared."""
        ...

    @property
    def can_be_asked_live(self) -> bool:
        """Return True if its connection carries requests from the server."""
        ...

    @property
    def in_session(self) -> bool:
        """Return True if its requests belong to a session that the server keeps."""
        ...

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Ask one question and wait for the answer.

        Raises:
            ConnectionLost: The client left before it answered.
        """
        ...

    async def tell_done(self, elicitation_id: str) -> None:
        """Tell a live client that its user is done with a page."""
        ...


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to ask the questions of one request besides its client's own."""

    page: Literal["url", "local", "link", "page"] | None = None
    """The way to a question page: its client shows it, it opens here, its result has it, or its user is on it."""
    model: bool = False
    """True if the model that called the tool may answer questions for anyone."""
    is_live: bool = False
    """True if the client itself is asked over its connection, for samples and roots."""
    for_links: Literal["local", "link"] | None = None
    """The way to a question page for rounds with a link, if the client shows forms alone."""

    @property
    def replaces_client(self) -> bool:
        """Return True if users are not asked by the client itself."""
        return self.page is not None or self.model

    @property
    def may_store(self) -> bool:
        """Return True if a call that asks may be stored."""
        return self.replaces_client or self.for_links is not None


class Settler(Protocol):
    """Settler of one kind of external questions, on the legs of one call."""

    def settle(self, waiting: PendingQuestion, computed: ComputedValues) -> Outcome | None:
        """Return the outcome of a question; None leaves it open, with `is_over` set if `otherwise` must replace it."""
        ...

    def check(self, waiting: PendingQuestion) -> None:
        """Check that the call may wait for an open question.

        Raises:
            RoundtripError: It may not.
        """
        ...

    def opened_after(self, changed: Set[str]) -> list[str]:
        """Return the names of the questions that were opened when one of some others had its answer."""
        ...

    def void(self, stale: Iterable[str], computed: ComputedValues) -> None:
        """Note that outcomes no longer count, because a review has changed an answer before them."""
        ...
