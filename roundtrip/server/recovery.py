"""Expired calls that may be begun again, with the forms filled in as they were answered.

Everything but the time has been checked by then: the token is genuine, of this service, this request and this user.
Nothing that was answered counts: what it says are the defaults of the questions that are put anew.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext

from roundtrip.errors import LedgerUnavailable
from roundtrip.ledger.contract import LedgerDown
from roundtrip.machine.journal import Entry, Journal
from roundtrip.runtime.answers import seeds_of
from roundtrip.server.effects import Effects
from roundtrip.server.failures import tool_failure
from roundtrip.server.security import Protection
from roundtrip.server.tools.registered import RegisteredTool

__all__ = ["Recovery"]

logger = logging.getLogger("roundtrip")


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
        if tool.spec.exactly_once and await self._has_begun(journal.call_id, tool.name):
            return None
        responses = params.get("inputResponses")
        given: Mapping[str, object] = cast("Any", responses) if isinstance(responses, Mapping) else {}
        logger.info("call %s of tool %r has expired, and is begun again", journal.call_id, tool.name)
        return seeds_of(journal, given)

    async def _has_begun(self, call_id: str, tool: str) -> bool:
        """Whether its body has run, or may have."""
        try:
            return await self._effects.ledger.wait(call_id, patience=0.0) is not None
        except LedgerDown as error:
            logger.error("%s", error)
            raise tool_failure(tool, LedgerUnavailable(f"tool {tool!r}"), mask=False) from error
