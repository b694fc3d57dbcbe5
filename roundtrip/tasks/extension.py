"""Serve the Tasks extension: its methods, and the results of calls that became tasks."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from mcp_types import INVALID_PARAMS, ClientCapabilities
from starlette.requests import Request

from roundtrip.engine.leg import HandedOver
from roundtrip.ledger.contract import LedgerDown
from roundtrip.limited_logs import LimitedLog
from roundtrip.revisions import is_retry_era
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import split_id
from roundtrip.tasks.listening import LISTEN, TaskListening, tasks_listened_for
from roundtrip.threads.loops import is_on_asyncio
from roundtrip.tools.failures import store_down
from roundtrip.tools.task_mode import TaskMode

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
_HEADER_MISMATCH: Final = -32020
_EXTENSION_MISSING: Final = -32021


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
    return MCPError(
        code=_EXTENSION_MISSING,
        message=f"this needs a client that declares the extension {EXTENSION}",
        data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


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
        self._listening = TaskListening(book)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if not is_retry_era(ctx.protocol_version):
            return await call_next(ctx)
        if ctx.method == LISTEN and (ids := tasks_listened_for(ctx.params)) is not None:
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
        return await self._listening.serve(ctx, call_next, own)

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
