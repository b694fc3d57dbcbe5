"""Run legs of stored calls that need their client: its headers, its access token.

A leg that an answer on a page has started has no request. A body that asks for a part of it ends the leg, and the call
waits until its client sends a request for it. Then that request runs the leg. A tool with a visibility gate waits so
before each leg, because its gate needs a request.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.context import ServerRequestContext

from roundtrip.ledger.lease import lease_seconds
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry
from roundtrip.machine.journal import Journal
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallContent
from roundtrip.stored.lease import CallLease
from roundtrip.stored.legs import WorkerLeg

if TYPE_CHECKING:
    from roundtrip.stored.worker import CallWorker


async def run_with_client(
    engine: CallWorker, book: CallBook, call_id: str, request: ServerRequestContext[Any, Any]
) -> None:
    """Begin the leg of a call that waits for its client, with a request of this client, unless another request did.

    Raises:
        LedgerDown: The store cannot be used.
        ContentUnreadable: No key of this server opens the call.
    """

    def claim_it(entry: CallEntry, now: float) -> tuple[CallEntry, float, CallContent, Journal] | None:
        content = book.seal.read(entry.content, call_id)
        if not content.needs_client or not entry.apply(StoredEvent.WAKE, now):
            return None
        journal = book.read_journal(content)
        content.needs_client = False
        entry.content = book.seal.write(content, call_id)
        entry.claim(engine.holder, now, lease=lease_seconds())
        return entry, now, content, journal

    claimed = await book.change(call_id, claim_it) if engine.has_room_apart else None
    if claimed is None:
        return
    entry, now, content, journal = claimed
    claim = CallLease(book, entry, now)
    leg = WorkerLeg(content, journal, claim, book.pinner_of(content), request)
    # The leg may outlive the request, so it takes the token alone from its context.
    context = Context()
    context.run(auth_context_var.set, auth_context_var.get())
    engine.begin_apart(leg, context)
