"""What roundtrip knows of the request being served. `RequestBoundary` makes it, and whoever serves adds to it."""

from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.server.context import ServerRequestContext

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Entry, Journal
from roundtrip.questions.outcomes import Outcome

__all__ = ["REQUEST", "SKEW", "RequestRecord", "asking_request"]

SKEW: Final = 60.0
"""How far, in seconds, the clocks of two instances may differ."""


@dataclass(slots=True)
class RequestRecord:
    """One request on its way through: its journal, and what is needed to explain a refusal."""

    context: ServerRequestContext[Any, Any]
    may_ask: bool
    """Whether its method is one that may ask."""
    journal: Journal | None = None
    claimed: bool = False
    """Whether a leg has taken the journal; a tool called from within a tool is a call of its own."""
    call_id: str | None = None
    """The call that the leg belongs to."""
    watch: Watch | None = None
    """To be told, when the request has been served, how large a token went out."""
    token_in: int | None = None
    token_out: int | None = None
    """The sizes of the tokens that came and go."""
    seeds: Mapping[str, Entry] | None = None
    """What was answered in the expired call that this request begins again."""
    replaces: str | None = None
    """That call."""
    origin: str | None = None
    """The call for which the pins of those answers were made."""
    minted: str | None = None
    """The state that the request's own leg returned, as opposed to one an author wrote by hand."""
    packed: bytes | None = None
    """What that state stands for: the journal to put into the token."""
    brought: bytes | None = None
    """The journal of the token that came, which is authentic, though it may have been written for another request."""
    reason: RejectionReason | None = None
    """Why the token is refused."""
    found: dict[object, dict[Hashable, Outcome]] = field(default_factory=dict[object, dict[Hashable, Outcome]])
    """What the gates of each server found out, which holds until the request ends."""
    ended: bool = False
    """Whether it has been served; a task that it started may go on."""


REQUEST: ContextVar[RequestRecord | None] = ContextVar("roundtrip_request", default=None)
"""The request being served, whatever its method."""


def asking_request() -> RequestRecord | None:
    """The request being served, where its method is one that may ask."""
    request = REQUEST.get()
    return request if request is not None and request.may_ask else None
