"""The two eras of the protocol, and the one that a test is to run on."""

from contextvars import ContextVar
from enum import Enum
from typing import Final

__all__ = ["CHOSEN", "Era"]


class Era(Enum):
    """An era; the value is what the SDK's client is told."""

    RETRY = "2026-07-28"
    """Questions are returned, and the client sends the request again with the answers."""
    LIVE = "legacy"
    """Questions come over the open connection."""


CHOSEN: Final[ContextVar[Era]] = ContextVar("roundtrip_era", default=Era.RETRY)
"""The era of the running test, for users that are not told one."""
