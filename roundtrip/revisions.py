"""Protocol revisions. Code compares revisions by order, because each revision keeps the features of earlier ones.

No other module contains a revision literal. The SDK defines the list of revisions and their order.
"""

from functools import lru_cache
from typing import Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least

FIRST_OF_RETRY_ERA: Final = "2026-07-28"
"""First revision on which the server returns its questions, and the client repeats the request with answers."""

CLIENTS_STOP_AFTER_ROUNDS: Final = 10
"""Number of rounds after which all tested retry-era clients abandon a call."""


@lru_cache(maxsize=32)
def is_retry_era(revision: str | None) -> bool:
    """Return True if questions are returned to clients on this revision. Without a client, the revision is None."""
    return revision is not None and is_version_at_least(revision, FIRST_OF_RETRY_ERA)


def is_live_era(revision: str | None) -> bool:
    """Return True if a server asks clients on this revision over their open connection."""
    return revision in HANDSHAKE_PROTOCOL_VERSIONS
