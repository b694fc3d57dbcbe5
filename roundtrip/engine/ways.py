"""Provide the ways to ask the questions of a request besides its client's own."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Ways"]


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to ask the questions of one request besides its client's own."""

    page: Literal["url", "local", "link", "page"] | None = None
    """The way to a question page: its client shows it, it opens here, its result has it, or its user is on it."""
    model: bool = False
    """True if the model that called the tool may answer questions for anyone."""
    is_live: bool = False
    """True if the client itself is asked over its connection, for samples and roots."""

    @property
    def stores(self) -> bool:
        """Return True if a call that asks is stored."""
        return self.page is not None or self.model
