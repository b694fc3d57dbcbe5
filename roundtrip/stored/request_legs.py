"""Run legs of stored calls in the process that received a request, and for this request.

`task=after(seconds)` runs the body of a call there, and stores the call as a task only if it must wait. The body runs
as a leg of a task from its beginning, because it cannot move when its request ends. Until the call becomes a task, the
lease on it and the results of its steps are in memory only.

Other legs need their client: its headers, its access token. A leg that an answer on a page has started has no request.
A body that asks for a part of it ends the leg, and the call waits until its client sends a request for it. Then that
request runs the leg. A tool with a visibility gate waits so before each leg, because its gate needs a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

import anyio
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.lease import lease_seconds
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry
from roundtrip.limited_logs import LimitedLog
from roundtrip.machine.journal import Journal
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import CallContent
from roundtrip.stored.lease import CallLease
from roundtrip.stored.legs import WorkerLeg
from roundtrip.stored.worker import CallWorker

_LOG: Final = LimitedLog(logging.getLogger("roundtrip"))
_RETRY_SECONDS: Final = 1.0
"""Time between two attempts to store a call while its body runs."""


class _LocalClaim(CallLease):
    """Lease on a call that is not stored yet."""

    def __init__(self, book: CallBook, entry: CallEntry, now: float) -> None:
        super().__init__(book, entry, now)
        self.is_local = True
        self._lock = asyncio.Lock()

    async def publish(self) -> StoredView | None:
        """Store the call as a task, and return it; or the task that it has already. None if the call has ended.

        Raises:
            LedgerDown: The store cannot be used.
        """
        async with self._lock:
            entry = self.entry
            if entry.has_ended:
                return None
            # All instances compare times with the clock of the store.
            existing, now = await self._book.store.load(self.call_id)
            entry.shift(now - self.clock())
            if existing is None:
                is_stored = await self._book.store.add(entry)
            else:
                is_stored = existing.is_held(*self._seen.writer) and await self._replace(existing, now)
            if is_stored:
                self.is_local = False
                entry.stored_notes = len(entry.notes)
                self._seen.saw(entry, now)
                return StoredView(entry, self._book.seal.read(entry.content, self.call_id))
        # Another instance was faster, with a copy of the request.
        self.lose()
        return await self._book.view(self.call_id)

    async def _replace(self, stored: CallEntry, now: float) -> bool:
        """Write the call over the task that an earlier attempt has stored, although its answer was lost."""
        entry, seal = self.entry, self._book.seal
        content = seal.read(entry.content, self.call_id)
        content.take_signals(seal.read(stored.content, self.call_id).signals, entry, now)
        entry.content = seal.write(content, self.call_id)
        entry.version, entry.stored_notes = stored.version + 1, stored.stored_notes
        return await self._book.store.save(entry, version=stored.version)

    async def _change_once(self, work: Callable[[CallEntry, float], bool]) -> bool:
        async with self._lock:
            if self.is_local:
                return work(self.entry, self.clock())
        return await super()._change_once(work)

    async def _look(self) -> None:
        if not self.is_local:
            await super()._look()


async def run_in_foreground(
    engine: CallWorker, book: CallBook, entry: CallEntry, content: CallContent, journal: Journal, *, seconds: float
) -> dict[str, Any] | StoredView:
    """Run a body for some seconds, and return its result; or the task of its call, if it needs more time or an answer.

    Returns:
        The result as the protocol writes it, or the task.

    Raises:
        MCPError: The tool raised a protocol error.
        LedgerDown: The call must wait, and the store cannot be used.
    """
    now = book.clock()
    entry.claim(engine.holder, now, lease=lease_seconds())
    claim = _LocalClaim(book, entry, now)
    work = engine.begin_apart(WorkerLeg(content, journal, claim, book.pinner_of(content)))
    publishing: asyncio.Task[StoredView | None] | None = None
    try:
        await asyncio.wait([work], timeout=seconds)
        while True:
            if not entry.has_ended:
                # Not ended with the request: the store may have the task already.
                publishing = asyncio.get_running_loop().create_task(claim.publish(), context=Context())
                try:
                    task = await asyncio.shield(publishing)
                except LedgerDown as error:
                    if work.done():
                        raise
                    _LOG.warning("a call becomes a task as soon as it can be stored: %s", error)
                    await asyncio.wait([work], timeout=_RETRY_SECONDS)
                    continue
                if task is not None:
                    return task
            await asyncio.wait([work])
            return _result_of(book.seal.read(entry.content, entry.call_id))
    except anyio.get_cancelled_exc_class():
        # The client left.
        if publishing is None or publishing.done():
            _end_unless_stored(claim, work)
        else:
            publishing.add_done_callback(lambda _: _end_unless_stored(claim, work))
        raise


def _end_unless_stored(claim: _LocalClaim, work: asyncio.Task[None]) -> None:
    """End a body whose call is not a task, and whose client has left."""
    if claim.is_local:
        work.cancel()


def _result_of(content: CallContent) -> dict[str, Any]:
    if content.error is not None:
        raise MCPError.from_error_data(ErrorData.model_validate(content.error))
    return content.result or {}


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
    leg = WorkerLeg(content, journal, CallLease(book, entry, now), book.pinner_of(content), request)
    # The leg may outlive the request, so it takes the token alone from its context.
    context = Context()
    context.run(auth_context_var.set, auth_context_var.get())
    engine.begin_apart(leg, context)
