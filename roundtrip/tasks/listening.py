"""Send `notifications/tasks` to the clients that listen for tasks, on every instance that shares the store.

The SDK's handler keeps serving `subscriptions/listen`. It knows no tasks, so it gets a session that adds them to its
acknowledgment, and a second asyncio task sends the notifications on the same stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, Notification, SubscriptionFilter, SubscriptionsAcknowledgedNotification

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.tasks import CallStore
from roundtrip.limited_logs import LimitedLog
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import ContentUnreadable

LISTEN: Final = "subscriptions/listen"
_MAX_TASKS: Final = 256
"""Tasks that one stream may listen for."""
_RETRY_SECONDS: Final = 1.0
_DIGEST_BYTES: Final = 16

# Limited, as clients can cause them.
_LOG: Final = LimitedLog(logging.getLogger("roundtrip"))


class _TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"


def tasks_listened_for(params: Mapping[str, Any] | None) -> Sequence[str] | None:
    """Return the ids of the tasks that a request listens for; None if it does not mention tasks.

    Raises:
        MCPError: They are not a list of texts, or too many.
    """
    wanted: object = (params or {}).get("notifications")
    if not isinstance(wanted, Mapping):
        return None
    given: object = cast("Mapping[str, Any]", wanted).get("taskIds")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(task_id, str) for task_id in cast("list[Any]", given)):
        raise MCPError(code=INVALID_PARAMS, message="taskIds must be a list of texts")
    ids = list(dict.fromkeys(cast("list[str]", given)))
    if len(ids) > _MAX_TASKS:
        raise MCPError(code=INVALID_PARAMS, message=f"taskIds must have at most {_MAX_TASKS} ids, got {len(ids)}")
    return ids


class TaskListening:
    """Streams of one server whose clients listen for tasks."""

    def __init__(self, book: CallBook) -> None:
        self._book = book
        self._hubs: dict[asyncio.AbstractEventLoop, _LoopStreams] = {}

    async def serve(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext, tasks: Mapping[str, str]
    ) -> HandlerResult:
        """Serve one stream.

        Args:
            ctx: The request.
            call_next: Serves the rest of the stream.
            tasks: The ids of the tasks by their calls; all belong to the client.
        """
        loop = asyncio.get_running_loop()
        stream = _TaskStream(self._book, ctx, tasks)
        hub = self._hubs.get(loop)
        if hub is None:
            hub = self._hubs[loop] = _LoopStreams(self._book.store)
        hub.add(stream)
        # Not in a task group, which would wrap the errors of the SDK's handler.
        pump = loop.create_task(stream.pump(), name="roundtrip: send the states of tasks")
        try:
            return await call_next(stream.context())
        finally:
            pump.cancel()
            hub.remove(stream)
            if not hub.streams:
                hub.stop()
                self._hubs.pop(loop, None)


class _TaskStream:
    """One stream, with the tasks whose state it still has to send."""

    def __init__(self, book: CallBook, ctx: ServerRequestContext[Any, Any], tasks: Mapping[str, str]) -> None:
        self.calls = tasks.keys()
        self._ids = list(tasks.values())
        self._book = book
        self._ctx = ctx
        self._sent: dict[str, bytes] = {}
        """The digests of the states that were sent last: a state may have a large result."""
        # At first all: a task may have changed before the client began to listen.
        self._changed: dict[str, None] = dict.fromkeys(tasks)
        self._bell = anyio.Event()
        self._is_acknowledged = anyio.Event()

    def context(self) -> ServerRequestContext[Any, Any]:
        """Return the request with a session that acknowledges the tasks."""
        session = _AcknowledgingSession(self._ctx.session, self._ids, self._is_acknowledged)
        return replace(self._ctx, session=cast("ServerSession", session))

    def changed(self, calls: Iterable[str]) -> None:
        """Note tasks that may have changed."""
        self._changed.update(dict.fromkeys(calls))
        self._bell.set()

    async def pump(self) -> None:
        """Send the state of each task that has changed, until the client leaves."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._send_changes()

    async def _send_changes(self) -> None:
        await self._is_acknowledged.wait()
        while True:
            while self._changed:
                call_id = next(iter(self._changed))
                del self._changed[call_id]
                try:
                    await self._send(call_id)
                except LedgerDown as error:
                    _LOG.warning("a client that listens for a task hears of it later: %s", error)
                    self._changed[call_id] = None
                    await anyio.sleep(_RETRY_SECONDS)
            self._bell = anyio.Event()
            await self._bell.wait()

    async def _send(self, call_id: str) -> None:
        try:
            view = await self._book.view(call_id)
        except ContentUnreadable:
            return
        if view is None:
            return
        shown = self._book.describe(view)
        # Workers renew leases, and store steps: clients see neither.
        visible = json.dumps({name: value for name, value in shown.items() if name != "lastUpdatedAt"})
        digest = hashlib.blake2b(visible.encode(), digest_size=_DIGEST_BYTES).digest()
        if self._sent.get(call_id) == digest:
            return
        self._sent[call_id] = digest
        notification = _TaskNotification(params={**shown, "_meta": {SUBSCRIPTION_ID_META_KEY: self._ctx.request_id}})
        await self._ctx.session.send_notification(cast("Any", notification), related_request_id=self._ctx.request_id)


class _LoopStreams:
    """Streams of one event loop."""

    def __init__(self, store: CallStore) -> None:
        self.streams: set[_TaskStream] = set()
        self._by_call: dict[str, set[_TaskStream]] = {}
        self.stop = store.listen(self.changed)

    def add(self, stream: _TaskStream) -> None:
        self.streams.add(stream)
        for call_id in stream.calls:
            self._by_call.setdefault(call_id, set()).add(stream)

    def remove(self, stream: _TaskStream) -> None:
        self.streams.discard(stream)
        for call_id in stream.calls:
            self._by_call[call_id].discard(stream)
            if not self._by_call[call_id]:
                del self._by_call[call_id]

    def changed(self, call_id: str | None) -> None:
        """Tell the streams that listen for a task; None for all, after changes may have been missed."""
        if call_id is None:
            for stream in self.streams:
                stream.changed(stream.calls)
        else:
            for stream in self._by_call.get(call_id, ()):
                stream.changed((call_id,))


class _AcknowledgingSession:
    """The SDK's session, which adds the tasks to the acknowledgment of a stream."""

    def __init__(self, session: ServerSession, ids: list[str], sent: anyio.Event) -> None:
        self._session = session
        self._ids = ids
        self._sent = sent
        self._send: Callable[..., Awaitable[None]] = session.send_notification

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        is_first = isinstance(notification, SubscriptionsAcknowledgedNotification)
        if is_first:
            honored = notification.params.notifications.model_dump(by_alias=True, exclude_none=True)
            tasks = SubscriptionFilter.model_validate({**honored, "taskIds": self._ids})
            notification = notification.model_copy(
                update={"params": notification.params.model_copy(update={"notifications": tasks})}
            )
        await self._send(notification, related_request_id=related_request_id)
        if is_first:
            self._sent.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
