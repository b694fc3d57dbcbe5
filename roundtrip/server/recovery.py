"""Decide if an expired call may begin again, with its answers as the defaults of its forms.

The boundary has already checked the token, its service, its request and its user. Only its time is over. The answers
do not count: every question is asked again.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext

from roundtrip.engine.known import seeds_of
from roundtrip.errors import LedgerUnavailable
from roundtrip.ledger.contract import ClaimStatus, LedgerDown, Reach
from roundtrip.machine.journal import Entry, Journal
from roundtrip.server.failures import tool_failure
from roundtrip.server.parts import Parts
from roundtrip.server.requests import SKEW
from roundtrip.server.tools.registry import ToolRegistry, UnknownTool

__all__ = ["recover"]

logger = logging.getLogger("roundtrip")

_EXPIRED: Final = "expired"
"""The digest and the result in the entry of a call that another call replaces. No leg has this digest."""
_LEASE_SECONDS: Final = 30.0
_HOLDER_BYTES: Final = 12


async def recover(
    tools: ToolRegistry, parts: Parts, ctx: ServerRequestContext[Any, Any], journal: Journal, now: float
) -> Mapping[str, Entry] | None:
    """Return the answers of a call that may begin again; None if it may not.

    Raises:
        MCPError: The ledger cannot tell if the body of the call has run.
    """
    params = ctx.params or {}
    if ctx.method != "tools/call" or journal.authored is not None or not parts.protection.user(ctx):
        return None
    try:
        tool = tools.find(str(params.get("name")), journal.version)[0]
    except UnknownTool:
        return None
    # The build that began the call chose how long the ledger keeps its result: no later build may extend this time.
    if now >= journal.deadline + min(journal.recover, tool.function.limits.recover):
        return None
    if tool.spec.exactly_once:
        try:
            if not await _end(parts, ctx, journal, now):
                return None
        except LedgerDown as error:
            logger.error("%s", error)
            raise tool_failure(tool.name, LedgerUnavailable(tool.function.owner), mask=False) from error
    responses = params.get("inputResponses")
    given: Mapping[str, object] = cast("Any", responses) if isinstance(responses, Mapping) else {}
    logger.info("call %s of tool %r has expired, and begins again", journal.call_id, tool.name)
    return seeds_of(journal, given)


async def _end(parts: Parts, ctx: ServerRequestContext[Any, Any], journal: Journal, now: float) -> bool:
    """Return True if the expired call has not run its body, and never will.

    An instance whose clock is behind may still serve the leg, so the call is ended in the ledger first. A copy of the
    leg that arrives very late ends no call that has gone on in the meantime.
    """
    ledger, call = parts.effects.ledger, journal.call_id
    if now >= journal.deadline + SKEW:
        found = await ledger.wait(call, patience=0.0)
        return found is None or found.answers_digest == _EXPIRED
    holder = parts.system.entropy(_HOLDER_BYTES).hex()
    keep = max(0.0, journal.end - now) + journal.recover + SKEW
    account = None if ledger.reach > Reach.PROCESS else f"caller {parts.protection.principal(ctx)}"
    claim = await ledger.claim(call, _EXPIRED, holder=holder, lease=_LEASE_SECONDS, keep=keep, account=account)
    if claim.status is ClaimStatus.GRANTED:
        await ledger.settle(call, holder=holder, epoch=claim.epoch, result=_EXPIRED, keep=keep)
    # A client that did not receive the answer may replace the call again.
    return claim.answers_digest == _EXPIRED
