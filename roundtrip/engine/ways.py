"""Provide the ways to ask the questions of a request besides its client's own."""

from dataclasses import dataclass
from typing import Literal


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
