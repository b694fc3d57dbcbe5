"""Serve the Tasks extension: its methods, the results of calls that became tasks, and `notifications/tasks`.

Clients that listen for tasks are told by every instance that shares the store. The SDK's handler keeps serving
`subscriptions/listen`. It knows no tasks, so it gets a session that adds them to its acknowledgment, and a second
asyncio task sends the notifications on the same stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INVALID_PARAMS,
    ClientCapabilities,
    Notification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
)
from starlette.requests import Request

from roundtrip.engine.leg import HandedOver
from roundtrip.ledger.contract import LedgerDown
from roundtrip.limited_logs import LimitedLog
from roundtrip.revisions import is_retry_era
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import ContentUnreadable, split_id
from roundtrip.threads.loops import is_on_asyncio
from roundtrip.tools.failures import store_down
from roundtrip.tools.promises import TaskMode

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.legs.requests import Incoming
    from roundtrip.legs.runner import ServedEnd
    from roundtrip.stored.desk import ClientCall, Proceed, ToolHost
    from roundtrip.stored.service import CallService

logger = logging.getLogger("roundtrip")
# Limited, as clients can cause them.
_LOG: Final = LimitedLog(logger)

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_LISTEN: Final = "subscriptions/listen"
_HEADER_MISMATCH: Final = -32020
_EXTENSION_MISSING: Final = -32021
_MAX_TASKS: Final = 256
"""Tasks that one stream may listen for."""
_RETRY_SECONDS: Final = 1.0
_DIGEST_BYTES: Final = 16


def serve_extension(host: ToolHost, service: CallService) -> None:
    """Give a server the extension, once it has a tool that runs as a task."""
    server = host.low_level
    entries: list[object] = [*server.middleware]
    if any(isinstance(entry, TaskMethods) for entry in entries):
        return
    server.extensions[EXTENSION] = {}
    host.desk.features.insert(0, _TaskStep(service))
    # Just before the innermost middleware, so inside all of the author's.
    place = entries.index(host) if host in entries else len(entries)
    server.middleware.insert(place, TaskMethods(service.book, host.legs.parts, host.stamp))


class _TaskStep:
    """Calls that become tasks, for clients that have declared the extension."""

    def __init__(self, service: CallService) -> None:
        self._service = service

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request; return the handle of a task if its call becomes one."""
        record = call.record
        is_retry = is_retry_era(record.context.protocol_version)
        record.may_become_task = is_retry and is_on_asyncio() and declares_tasks(record.context)
        end = await proceed()
        if isinstance(end, HandedOver):
            return await self._service.create(call.find(), record.context, record)
        return end


def declares_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return True if the client of a request has declared the extension for it."""
    capabilities: ClientCapabilities | None = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def extension_missing() -> MCPError:
    """Return the error for a client that has not declared the extension."""
    message = f"this needs a client that declares the extension {EXTENSION}"
    return MCPError(_EXTENSION_MISSING, message, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


def require_task(function: AskingFunction, incoming: Incoming) -> None:
    """Reject a request for a tool that runs as a task only, from a client that cannot have tasks.

    Raises:
        MCPError: The client has not declared the extension.
    """
    record = incoming.record
    task = function.policy(TaskMode)
    if task is None or not task.is_required or record is None or incoming.request is None:
        return
    if record.stored is None and not record.is_taken and not record.may_become_task:
        raise extension_missing()


class TaskMethods:
    """Middleware that serves the methods of the extension.

    Args:
        book: The tasks of the server.
        parts: Its keys, which say who the client is.
        stamp: Returns the server's description for the metadata of results.
    """

    def __init__(self, book: CallBook, parts: Parts, stamp: Callable[[], dict[str, Any]]) -> None:
        self._book = book
        self._parts = parts
        self._stamp = stamp

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if not is_retry_era(ctx.protocol_version):
            return await call_next(ctx)
        if ctx.method == _LISTEN and (ids := _tasks_listened_for(ctx.params)) is not None:
            return await self._listen(ctx, call_next, ids)
        if ctx.method not in _METHODS:
            return await call_next(ctx)
        if not declares_tasks(ctx):
            raise extension_missing()
        params = ctx.params or {}
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method} needs taskId, a text")
        _check_name(ctx, task_id)
        try:
            view = await self._own(ctx, task_id)
            if view is None:
                # The same answer whether the task is another client's or there is none.
                raise MCPError(code=INVALID_PARAMS, message="Task not found")
            shown = await self._serve(ctx.method, view, params)
        except LedgerDown as error:
            raise _out_of_reach(error) from error
        return {**shown, "resultType": "complete", "_meta": {**self._stamp()}}

    async def _own(self, ctx: ServerRequestContext[Any, Any], task_id: str) -> StoredView | None:
        """Return a task of this client; None if there is no such task, or if it is another client's."""
        call_id, secret = split_id(task_id)
        # Of other texts the secrets cannot be compared.
        view = await self._book.find(call_id) if secret.isascii() else None
        if view is None or not hmac.compare_digest(view.content.origin.secret, secret):
            return None
        # The handle of another call is not a task's, else its holder could answer for the user of its page.
        if view.content.is_continued:
            return None
        if view.content.origin.principal != self._parts.protection.principal(ctx):
            return None
        self._book.name(call_id)
        return view

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext, ids: Sequence[str]
    ) -> HandlerResult:
        """Serve a stream that listens for tasks; those that are not the client's are not acknowledged."""
        if not declares_tasks(ctx):
            raise extension_missing()
        try:
            # Without their contents, which would be kept for as long as the stream lives.
            own = {split_id(task_id)[0]: task_id for task_id in ids if await self._own(ctx, task_id) is not None}
        except LedgerDown as error:
            raise _out_of_reach(error) from error
        return await _serve_stream(self._book, ctx, call_next, own)

    async def _serve(self, method: str, view: StoredView, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "tasks/get":
            return self._book.describe(view)
        if method == "tasks/update":
            responses = params.get("inputResponses")
            if not isinstance(responses, Mapping):
                raise MCPError(code=INVALID_PARAMS, message="tasks/update needs inputResponses, an object")
            await self._book.answer(view.entry.call_id, cast("Mapping[str, Any]", responses))
        elif view.content.channel.reply is None:
            # One that has ended for its client goes on as a call.
            await self._book.cancel(view.entry.call_id)
        return {}


def _out_of_reach(error: LedgerDown) -> MCPError:
    _LOG.warning("a client cannot reach its task: %s", error)
    return store_down("Tasks cannot be reached now")


def _check_name(ctx: ServerRequestContext[Any, Any], task_id: str) -> None:
    """Check the header by which proxies find the task. Clients of older SDKs send none.

    Raises:
        MCPError: It names another task.
    """
    request: object = ctx.request
    if not isinstance(request, Request):
        return
    sent = cast("Request[Any]", request).headers.getlist("mcp-name")
    if any(decode_header_value(name) != task_id for name in sent):
        raise MCPError(code=_HEADER_MISMATCH, message="the header Mcp-Name must be the taskId of the request")


class _TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"


def _tasks_listened_for(params: Mapping[str, Any] | None) -> Sequence[str] | None:
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


async def _serve_stream(
    book: CallBook, ctx: ServerRequestContext[Any, Any], call_next: CallNext, tasks: Mapping[str, str]
) -> HandlerResult:
    """Serve one stream whose client listens for tasks.

    Args:
        book: The tasks of the server.
        ctx: The request.
        call_next: Serves the rest of the stream.
        tasks: The ids of the tasks by their calls; all belong to the client.
    """
    stream = _TaskStream(book, ctx, tasks)
    stop = book.store.listen(stream.note_change)
    # Not in a task group, which would wrap the errors of the SDK's handler.
    pump = asyncio.get_running_loop().create_task(stream.pump(), name="roundtrip: send the states of tasks")
    try:
        return await call_next(stream.context())
    finally:
        pump.cancel()
        stop()


class _TaskStream:
    """One stream, with the tasks whose state it still has to send."""

    def __init__(self, book: CallBook, ctx: ServerRequestContext[Any, Any], tasks: Mapping[str, str]) -> None:
        self._tasks = tasks
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
        session = _AcknowledgingSession(self._ctx.session, list(self._tasks.values()), self._is_acknowledged)
        return replace(self._ctx, session=cast("ServerSession", session))

    def note_change(self, call_id: str | None) -> None:
        """Note a task that may have changed; None for all, after changes may have been missed."""
        if call_id is None or call_id in self._tasks:
            self._changed.update(dict.fromkeys(self._tasks if call_id is None else (call_id,)))
            self._bell.set()

    async def pump(self) -> None:
        """Send the state of each task that has changed, until the client leaves."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
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
