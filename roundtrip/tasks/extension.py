"""The Tasks extension: its methods, the results of calls that become tasks, and `notifications/tasks`.

A client can listen to tasks on any instance that shares the store. `subscriptions/listen` is still served by the SDK's
handler, which does not know tasks. So this handler gets a session that adds the tasks to its acknowledgment. A separate
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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INVALID_PARAMS,
    ClientCapabilities,
    Notification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
)
from starlette.requests import Request

from roundtrip.engine.leg import HandedOver
from roundtrip.ledger.contract import LedgerDown
from roundtrip.limited_logs import LimitedLog
from roundtrip.revisions import is_retry_era
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import ContentUnreadable, has_id_form, split_id
from roundtrip.threads.loops import is_on_asyncio
from roundtrip.tools.failures import store_down
from roundtrip.tools.promises import TaskMode
from roundtrip.untrusted import is_texts, mapping_of

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.legs.requests import Incoming
    from roundtrip.legs.runner import ServedEnd
    from roundtrip.stored.desk import ClientCall, Proceed, ToolHost
    from roundtrip.stored.service import CallService

logger = logging.getLogger("roundtrip")
# Limit how often these lines are logged, because clients can trigger them.
_LOG: Final = LimitedLog(logger)

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_LISTEN: Final = "subscriptions/listen"
_HEADER_MISMATCH: Final = -32020
_EXTENSION_MISSING: Final = -32021
_MAX_TASKS: Final = 256
"""The maximum number of tasks that one stream may listen to."""
_RETRY_SECONDS: Final = 1.0
_DIGEST_BYTES: Final = 16


def serve_extension(host: ToolHost, service: CallService) -> None:
    """Add the extension to a server whose tools run as tasks, unless the server already has it."""
    server = host.low_level
    entries: list[object] = [*server.middleware]
    if any(isinstance(entry, TaskMethods) for entry in entries):
        return
    server.extensions[EXTENSION] = {}
    host.desk.features.insert(0, _TaskCreation(service))
    # Insert the extension just before the innermost middleware, so that all the author's middleware runs first.
    position = entries.index(host) if host in entries else len(entries)

    def has_others(method: str) -> bool:
        return server.get_request_handler(method) is not None

    server.middleware.insert(position, TaskMethods(service.book, host.legs.parts, host.stamp, has_others))


class _TaskCreation:
    """Desk feature that turns calls into tasks, for clients that have declared the extension."""

    def __init__(self, service: CallService) -> None:
        self._service = service

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request. If the call becomes a task, return the task's handle."""
        record = call.record
        is_retry = is_retry_era(record.context.protocol_version)
        record.may_become_task = is_retry and is_on_asyncio() and declares_tasks(record.context)
        end = await proceed()
        if isinstance(end, HandedOver):
            return await self._service.create(call.find(), record.context, record, tool=call.name)
        return end


def declares_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return True if the client that sent the request has declared the extension."""
    capabilities: ClientCapabilities | None = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def extension_missing() -> MCPError:
    """Return the error for a client that has not declared the extension."""
    message = f"this request needs a client that declares the extension {EXTENSION}"
    return MCPError(_EXTENSION_MISSING, message, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


def require_task(function: AskingFunction, incoming: Incoming) -> None:
    """Reject a request if its tool runs only as a task and its client cannot use tasks.

    Raises:
        MCPError: The client has not declared the extension.
    """
    record = incoming.record
    task = function.policy(TaskMode)
    if task is None or not task.is_required or record is None or incoming.request is None:
        return
    if record.stored is None and not record.is_taken and not record.may_become_task:
        raise extension_missing()


@dataclass(slots=True, eq=False, repr=False)
class TaskMethods:
    """Middleware that serves the extension's methods."""

    _book: CallBook
    """The server's tasks."""
    _parts: Parts
    """The server's keys. They are needed to identify the client."""
    _stamp: Callable[[], dict[str, Any]]
    """Returns the description of the server that is added to each result's metadata."""
    _has_others: Callable[[str], bool]
    """Returns True if the server also has a handler for a method, such as FastMCP's for FastMCP's tasks."""
    _streams: ListenHandler = field(default_factory=lambda: ListenHandler(InMemorySubscriptionBus()), init=False)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message. This method has the signature that the SDK's middleware needs."""
        if not is_retry_era(ctx.protocol_version):
            return await call_next(ctx)
        if ctx.method == _LISTEN and (ids := _requested_tasks(ctx.params)) is not None:
            return await self._listen(ctx, call_next, ids)
        if ctx.method not in _METHODS:
            return await call_next(ctx)
        params = ctx.params or {}
        task_id = params.get("taskId")
        if isinstance(task_id, str) and not has_id_form(task_id) and self._has_others(ctx.method):
            return await call_next(ctx)
        if not declares_tasks(ctx):
            raise extension_missing()
        if not isinstance(task_id, str):
            raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method} needs a taskId string")
        _check_name(ctx, task_id)
        try:
            view = await self._find_own(ctx, task_id)
            if view is None:
                # The error must not reveal whether another client has this task.
                raise MCPError(code=INVALID_PARAMS, message="Task not found")
            shown = await self._serve(ctx.method, view, params)
        except LedgerDown as error:
            raise _unreachable_error(error) from error
        return {**shown, "resultType": "complete", "_meta": {**self._stamp()}}

    async def _find_own(self, ctx: ServerRequestContext[Any, Any], task_id: str) -> StoredView | None:
        """Return this client's task. Return None if there is no such task, or if it belongs to another client."""
        call_id, secret = split_id(task_id)
        # `compare_digest` rejects text that is not ASCII.
        view = await self._book.find(call_id) if secret.isascii() else None
        if view is None or not hmac.compare_digest(view.content.origin.secret, secret):
            return None
        # This handle belongs to a call that is not a task. If it were accepted here, the client could give answers that
        # must come from the user of the call page.
        if view.content.is_continued:
            return None
        if view.content.origin.principal != self._parts.protection.principal(ctx):
            return None
        self._book.name(call_id)
        return view

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext, ids: Sequence[str]
    ) -> HandlerResult:
        """Serve a stream that listens to tasks. Tasks that belong to other clients are not acknowledged."""
        if not declares_tasks(ctx):
            raise extension_missing()
        try:
            # Keep only the ids. The tasks' contents would stay in memory until the stream ends.
            own = {split_id(task_id)[0]: task_id for task_id in ids if await self._find_own(ctx, task_id) is not None}
        except LedgerDown as error:
            raise _unreachable_error(error) from error
        return await _serve_stream(self._book, ctx, call_next if self._has_others(_LISTEN) else self._serve_tasks, own)

    async def _serve_tasks(self, ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
        """Serve a stream of tasks only, on a server that has no handler for streams."""
        return await self._streams(ctx, SubscriptionsListenRequestParams(notifications=SubscriptionFilter()))

    async def _serve(self, method: str, view: StoredView, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "tasks/get":
            return self._book.describe(view)
        if method == "tasks/update":
            responses = params.get("inputResponses")
            if not isinstance(responses, Mapping):
                raise MCPError(code=INVALID_PARAMS, message="tasks/update needs an inputResponses object")
            await self._book.answer(view.entry.call_id, cast("Mapping[str, Any]", responses))
        elif view.content.channel.reply is None:
            # If the task has ended only for its client, it continues as a call, so do not cancel it.
            await self._book.cancel(view.entry.call_id)
        return {}


def _unreachable_error(error: LedgerDown) -> MCPError:
    _LOG.warning("a client cannot reach its task: %s", error)
    return store_down("Tasks cannot be reached now")


def _check_name(ctx: ServerRequestContext[Any, Any], task_id: str) -> None:
    """Check the `Mcp-Name` header, by which proxies route requests for a task. Clients on older SDKs do not send this
    header.

    Raises:
        MCPError: The header names another task.
    """
    request: object = ctx.request
    if not isinstance(request, Request):
        return
    sent = cast("Request[Any]", request).headers.getlist("mcp-name")
    if any(decode_header_value(name) != task_id for name in sent):
        raise MCPError(code=_HEADER_MISMATCH, message="the Mcp-Name header must be the same as the taskId")


class _TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"


def _requested_tasks(params: Mapping[str, Any] | None) -> Sequence[str] | None:
    """Return the ids of the tasks that a request listens to. Return None if the request does not mention tasks.

    Raises:
        MCPError: The ids are not a list of texts, or there are too many ids.
    """
    given: object = mapping_of((params or {}).get("notifications")).get("taskIds")
    if given is None:
        return None
    if not is_texts(given):
        raise MCPError(code=INVALID_PARAMS, message="taskIds must be a list of strings")
    ids = list(dict.fromkeys(given))
    if len(ids) > _MAX_TASKS:
        raise MCPError(code=INVALID_PARAMS, message=f"taskIds must have at most {_MAX_TASKS} ids, got {len(ids)}")
    return ids


async def _serve_stream(
    book: CallBook, ctx: ServerRequestContext[Any, Any], call_next: CallNext, tasks: Mapping[str, str]
) -> HandlerResult:
    """Serve one stream whose client listens to tasks.

    Args:
        book: The server's tasks.
        ctx: The request.
        call_next: Serves the rest of the stream.
        tasks: The task ids, by call id. These tasks all belong to the client.
    """
    stream = _TaskStream(book, ctx, tasks)
    stop = book.store.listen(stream.note_change)
    # Do not use a task group, because it would wrap errors from the SDK's handler.
    pump = asyncio.get_running_loop().create_task(stream.pump(), name="roundtrip: send the states of tasks")
    try:
        return await call_next(stream.context())
    finally:
        pump.cancel()
        stop()


class _TaskStream:
    """One stream, and the tasks whose state the stream must still send."""

    def __init__(self, book: CallBook, ctx: ServerRequestContext[Any, Any], tasks: Mapping[str, str]) -> None:
        self._tasks = tasks
        self._book = book
        self._ctx = ctx
        self._sent: dict[str, bytes] = {}
        """For each task, the digest of the last state that was sent. The states themselves may contain large results.
        """
        # Begin with all tasks, because a task may have changed before the client began to listen.
        self._changed: dict[str, None] = dict.fromkeys(tasks)
        self._bell = anyio.Event()
        self._is_acknowledged = anyio.Event()

    def context(self) -> ServerRequestContext[Any, Any]:
        """Return the request, with a session that acknowledges the tasks."""
        session = _AcknowledgingSession(self._ctx.session, list(self._tasks.values()), self._is_acknowledged)
        return replace(self._ctx, session=cast("ServerSession", session))

    def note_change(self, call_id: str | None) -> None:
        """Record that a task may have changed. If None, any task may have changed, because the store may have missed
        changes.
        """
        if call_id is None or call_id in self._tasks:
            self._changed.update(dict.fromkeys(self._tasks if call_id is None else (call_id,)))
            self._bell.set()

    async def pump(self) -> None:
        """Send the state of each changed task until the client disconnects."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._is_acknowledged.wait()
            while True:
                while self._changed:
                    call_id = next(iter(self._changed))
                    del self._changed[call_id]
                    try:
                        await self._send(call_id)
                    except LedgerDown as error:
                        _LOG.warning("a task notification for a client is delayed: %s", error)
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
        # Clients do not see lease renewals and stored steps, so these cause no notification.
        visible = json.dumps({name: value for name, value in shown.items() if name != "lastUpdatedAt"})
        digest = hashlib.blake2b(visible.encode(), digest_size=_DIGEST_BYTES).digest()
        if self._sent.get(call_id) == digest:
            return
        self._sent[call_id] = digest
        notification = _TaskNotification(params={**shown, "_meta": {SUBSCRIPTION_ID_META_KEY: self._ctx.request_id}})
        await self._ctx.session.send_notification(cast("Any", notification), related_request_id=self._ctx.request_id)


class _AcknowledgingSession:
    """The SDK's session, which also lists the tasks in the stream's acknowledgment."""

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
