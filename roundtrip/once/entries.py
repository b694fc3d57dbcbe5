"""The ledger entry of a leg that must run once: how long it stays, who pays for it, and the log of legs without one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roundtrip.legs.requests import SKEW

if TYPE_CHECKING:
    from roundtrip.legs.extensions import OpenLeg

logger = logging.getLogger("roundtrip")


def retention_seconds(leg: OpenLeg) -> float:
    """Return the number of seconds during which more legs of the call can arrive. After that, the ledger may forget the
    call.
    """
    journal, limits = leg.journal, leg.function.limits
    # Another build may have begun the call and chosen the lifetime of its tokens.
    left = limits.max_age if journal is None else max(0.0, journal.end - leg.parts.system.time())
    return left + SKEW


def account_of(leg: OpenLeg) -> str:
    """Return the account that the leg's ledger entries are charged to: a caller or a tool."""
    principal = leg.principal()
    return f"tool {leg.function.name}" if principal is None else f"caller {principal}"


def log_uncovered(owner: str, call_id: str, reason: str) -> None:
    """Log that a body runs although the same call may run it again."""
    logger.info("%s runs in call %s without the guarantee to run once: %s", owner, call_id, reason)
