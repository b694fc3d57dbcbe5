"""Expired calls that may be begun again, with the forms filled in as they were answered.

Everything but the time has been checked by then: the token is genuine, of this service, this request and this user.
Nothing that was answered counts: what it says are the defaults of the questions that are put anew.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext

from roundtrip.engine.known import seeds_of
from roundtrip.errors import LedgerUnavailable
from roundtrip.ledger.contract import EntryState, LedgerDown, Reach
from roundtrip.machine.journal import Entry, Journal
from roundtrip.server.failures import tool_failure
from roundtrip.server.keys import Protection
from roundtrip.server.parts import Effects
from roundtrip.server.requests import SKEW
from roundtrip.server.tools.registered import RegisteredTool

__all__ = ["Recovery"]

logger = logging.getLogger("roundtrip")

_EXPIRED: Final = "expired"
"""With what a call is claimed in the ledger by one that takes its place: no leg has such terms."""
_LEASE: Final = 30.0
_HOLDER_BYTES: Final = 12


class Recovery:
    """Decides which expired calls may be begun again."""

    def __init__(
        self,
        tool_of: Callable[[str, str | None], RegisteredTool | None],
        *,
        protection: Protection,
        effects: Effects,
    ) -> None:
        self._tool_of = tool_of
        self._protection = protection
        self._effects = effects

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], journal: Journal, now: float
    ) -> Mapping[str, Entry] | None:
        """What was answered in a call that may be begun again; None for one that may not.

        Raises:
            MCPError: Nobody knows whether its body has run.
        """
        params = ctx.params or {}
        if ctx.method != "tools/call" or journal.authored is not None or not self._protection.user(ctx):
            return None
        tool = self._tool_of(str(params.get("name")), journal.version)
        # Of the build that began the call as well: no other knows for how long its result is kept.
        if tool is None or now >= journal.deadline + min(journal.recover, tool.function.limits.recover):
            return None
        if tool.spec.exactly_once and not await self._ends(ctx, journal, now, tool.name):
            return None
        responses = params.get("inputResponses")
        given: Mapping[str, object] = cast("Any", responses) if isinstance(responses, Mapping) else {}
        logger.info("call %s of tool %r has expired, and is begun again", journal.call_id, tool.name)
        return seeds_of(journal, given)

    async def _ends(self, ctx: ServerRequestContext[Any, Any], journal: Journal, now: float, tool: str) -> bool:
        """Whether the expired call has not run its body, and never will.

        An instance whose clock is behind may still take the leg for one in time, so the call is ended in the ledger.
        After that nobody takes it, and a copy that is very late ends no call that has gone on meanwhile.
        """
        ledger = self._effects.ledger
        try:
            if now >= journal.deadline + SKEW:
                found = await ledger.wait(journal.call_id, patience=0.0)
                return found is None or found.terms == _EXPIRED
            holder = os.urandom(_HOLDER_BYTES).hex()
            keep = max(0.0, journal.end - now) + journal.recover + SKEW
            account = None if ledger.reach > Reach.PROCESS else f"caller {self._protection.principal(ctx)}"
            claim = await ledger.claim(
                journal.call_id, _EXPIRED, holder=holder, lease=_LEASE, keep=keep, account=account
            )
            if claim.standing is EntryState.GRANTED:
                await ledger.settle(journal.call_id, holder=holder, result=_EXPIRED, keep=keep)
            # Its place may be taken again, by whoever has not heard that it was.
            return claim.terms == _EXPIRED
        except LedgerDown as error:
            logger.error("%s", error)
            raise tool_failure(tool, LedgerUnavailable(f"tool {tool!r}"), mask=False) from error
