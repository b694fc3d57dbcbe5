"""Carry the request states of authors who ask by hand, outside of roundtrip's functions."""

from __future__ import annotations

import logging
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from roundtrip.errors import RoundtripError
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.server.parts import Parts
from roundtrip.server.requests import RequestRecord

__all__ = ["authored_journal"]

logger = logging.getLogger("roundtrip")


def authored_journal(parts: Parts, ctx: ServerRequestContext[Any, Any], request: RequestRecord, state: str) -> bytes:
    """Return a journal for a state that a function outside of roundtrip returned by hand.

    Raises:
        MCPError: It cannot be carried; the log has the reason.
    """
    journal, limits, system = request.journal, parts.limits, parts.system
    call = Call(system.new_id()) if journal is None else Call.resumed(journal)
    now = system.time()
    born = journal.born if journal is not None else now
    end = journal.end if journal is not None else born + limits.max_age
    deadline = min(now + limits.ttl, end)
    note = Journal(call.id, born, deadline, end, leg=call.leg, round=call.round, authored=state, written=now)
    try:
        return parts.protection.write(note)
    except RoundtripError as error:
        logger.error("cannot carry the request state of %s: %s", ctx.method, error)
        raise MCPError(code=INTERNAL_ERROR, message="Internal error") from error
