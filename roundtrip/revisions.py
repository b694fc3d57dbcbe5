"""The revisions of the protocol. They are compared by order, so that a later one keeps what an earlier one brought.

No other module spells a revision in code. Which revisions there are, and their order, is the SDK's knowledge.
"""

from functools import lru_cache
from typing import Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least

FIRST_OF_RETRY_ERA: Final = "2026-07-28"
"""From this revision on, questions are returned, and the client sends the request again with the answers."""

CLIENTS_STOP_AFTER_ROUNDS: Final = 10
"""Rounds after which every tested client of the retry era gives a call up."""


@lru_cache(maxsize=32)
def is_retry_era(revision: str | None) -> bool:
    """Return True if a client of this revision gets its questions returned. None stands for no client."""
    return revision is not None and is_version_at_least(revision, FIRST_OF_RETRY_ERA)


def is_live_era(revision: str | None) -> bool:
    """Return True if a client of this revision is asked over its open connection."""
    return revision in HANDSHAKE_PROTOCOL_VERSIONS
