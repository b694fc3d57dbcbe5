"""Legs of stored calls that run inside a client's request, in the process that received it.

`task=after(seconds)` runs a call's body in the process that received the request, and stores the call as a task only if
it must wait. A running body cannot move to another process when its request ends, so it runs as a task's leg from the
beginning. Until the call becomes a task, its lease and step results are only in memory.

Other legs need something from their client, such as headers or an access token. A leg that was started by an answer on
a page has no request. If its body then reads part of a request, the leg ends, and the call waits for a request from its
client. The next leg runs in that request. A tool with a visibility gate waits in the same way before each leg, because
the gate needs a request.
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
"""The seconds between two attempts to store a call while its body is running."""


class _UnstoredLease(CallLease):
    """Lease on a call that is not stored yet."""

    def __init__(self, book: CallBook, entry: CallEntry, now: float) -> None:
        super().__init__(book, entry, now)
        self.is_local = True
        self._lock = asyncio.Lock()

    async def publish(self) -> StoredView | None:
        """Store the call as a task. Return that task, or the task that another instance stored first. If the call has
        ended, return None.

        Raises:
            LedgerDown: The store cannot be used.
        """
        async with self._lock:
            entry = self.entry
            if entry.has_ended:
                return None
            # All instances compare times by the store's clock.
            existing, now = await self._book.store.load(self.call_id)
            entry.shift(now - self.clock())
            if existing is None:
                is_stored = await self._book.store.add(entry)
            else:
                is_stored = existing.is_held(*self._seen.writer) and await self._replace(existing, now)
            if is_stored:
                self.is_local = False
                entry.stored_notes = len(entry.notes)
                self._seen.remember_read(entry, now)
                return StoredView(entry, self._book.seal.read(entry.content, self.call_id))
        # Another instance received a copy of the request, and has already stored its own task.
        self.lose()
        return await self._book.view(self.call_id)

    async def _replace(self, stored: CallEntry, now: float) -> bool:
        """Overwrite the task from an earlier attempt to store the call. That attempt succeeded, but the store's reply
        was lost.
        """
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
    """Run a body, and return its result. If the body needs more than the given number of seconds, or an answer, return
    the call's task.

    Returns:
        The result in wire form, or the task.

    Raises:
        MCPError: The tool raised a protocol error.
        LedgerDown: The call must wait, but the store cannot be used.
    """
    now = book.clock()
    entry.claim(engine.holder, now, lease=lease_seconds())
    claim = _UnstoredLease(book, entry, now)
    work = engine.begin_for_request(WorkerLeg(content, journal, claim, book.pinner_of(content)))
    publishing: asyncio.Task[StoredView | None] | None = None
    try:
        await asyncio.wait([work], timeout=seconds)
        while True:
            if not entry.has_ended:
                # Storing the call continues even when the request ends, because the task may already be in the store.
                publishing = asyncio.get_running_loop().create_task(claim.publish(), context=Context())
                try:
                    task = await asyncio.shield(publishing)
                except LedgerDown as error:
                    if work.done():
                        raise
                    _LOG.warning("a call cannot be stored as a task; the server will try again: %s", error)
                    await asyncio.wait([work], timeout=_RETRY_SECONDS)
                    continue
                if task is not None:
                    return task
            await asyncio.wait([work])
            return _result_of(book.seal.read(entry.content, entry.call_id))
    except anyio.get_cancelled_exc_class():
        # The client has disconnected.
        if publishing is None or publishing.done():
            _end_unless_stored(claim, work)
        else:
            publishing.add_done_callback(lambda _: _end_unless_stored(claim, work))
        raise


def _end_unless_stored(claim: _UnstoredLease, work: asyncio.Task[None]) -> None:
    """After the client has disconnected, cancel the body unless its call is stored as a task."""
    if claim.is_local:
        work.cancel()


def _result_of(content: CallContent) -> dict[str, Any]:
    if content.error is not None:
        raise MCPError.from_error_data(ErrorData.model_validate(content.error))
    return content.result or {}


async def run_with_client(
    engine: CallWorker, book: CallBook, call_id: str, request: ServerRequestContext[Any, Any]
) -> None:
    """Begin a leg in a request from the client, for a call that waits for such a request. If another request already
    began the leg, do nothing.

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

    claimed = await book.change(call_id, claim_it) if engine.has_room_for_request else None
    if claimed is None:
        return
    entry, now, content, journal = claimed
    leg = WorkerLeg(content, journal, CallLease(book, entry, now), book.pinner_of(content), request)
    # The leg may outlive the request, so it keeps only the access token from the request's context.
    context = Context()
    context.run(auth_context_var.set, auth_context_var.get())
    engine.begin_for_request(leg, context)
