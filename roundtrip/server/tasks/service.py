"""Provide the tasks of one server: their methods, their engine on each event loop, and the legs that it serves."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ClientCapabilities

from roundtrip.engine.leg import Authored, Finished, Suspended
from roundtrip.ledger.contract import LedgerDown
from roundtrip.machine.journal import to_text
from roundtrip.server.limited_logs import LimitedLog
from roundtrip.server.requests import REQUEST, SKEW, RequestRecord, offer, take_back
from roundtrip.server.tasks.book import TaskBook
from roundtrip.server.tasks.content import ContentUnreadable, TaskContent
from roundtrip.server.tasks.engine import TaskEngine
from roundtrip.server.tasks.extension import EXTENSION, TaskMethods
from roundtrip.server.tasks.legs import TaskLeg, incoming_of

if TYPE_CHECKING:
    from roundtrip.server.functions import AskingFunction
    from roundtrip.server.leg_runner import LegRunner
    from roundtrip.server.sdk_private import HookedServer
    from roundtrip.server.tool_calls import ToolCalls

__all__ = ["TaskService"]

# Limited, as clients can cause them.
_LOG: Final = LimitedLog(logging.getLogger("roundtrip"))


class TaskService:
    """Tasks of one server, made with its first tool that runs as a task.

    Args:
        server: The server, which from now on has the extension.
        legs: Serves legs, and knows the event loops on which the server runs.
        calls: Serves calls of tools.
    """

    def __init__(self, server: HookedServer[Any], legs: LegRunner, calls: ToolCalls) -> None:
        self._legs = legs
        self._calls = calls
        self.book = TaskBook(legs.parts)
        self._engines: dict[asyncio.AbstractEventLoop, TaskEngine] = {}
        server.advertise(EXTENSION)
        methods = TaskMethods(lambda: self.book, legs.parts, calls.stamp)
        # Just before the innermost middleware, so inside all of the author's.
        place = server.middleware.index(calls) if calls in server.middleware else len(server.middleware)
        server.middleware.insert(place, methods)

    def start(self) -> None:
        """Run tasks on this event loop, while the server's lifespan is active here."""
        loop = asyncio.get_running_loop()
        if loop not in self._engines and self._legs.lifespans.get(loop):
            self._engines[loop] = TaskEngine(
                self.book, self._serve, self._legs.parts.system, knows=self._calls.has_task
            )

    async def stop(self) -> None:
        """Give up the tasks that run on this event loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.stop()

    async def create(
        self, function: AskingFunction, ctx: ServerRequestContext[Any, Any], record: RequestRecord
    ) -> dict[str, Any]:
        """Store the call of a request as a task, and return its handle.

        Raises:
            MCPError: The store cannot be used, and the client may try again.
        """
        journal, mode = record.handed, function.task
        if journal is None or mode is None:
            raise RuntimeError("a call without a journal cannot become a task")
        params = ctx.params or {}
        capabilities: ClientCapabilities | None = ctx.session.client_capabilities
        content = TaskContent(
            arguments=params.get("arguments") or {},
            capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {},
            protocol=ctx.protocol_version,
            principal=self._legs.parts.protection.principal(ctx),
            version=function.version,
            journal=to_text(self.book.journals.write(journal)),
        )
        once = function.once
        runs_once = once is not None and once.on_unknown == "fail"
        # As long as a token of the call lives, its request may be repeated, and must find the task.
        least = journal.end + journal.recover + SKEW - self._legs.parts.system.time() if once is not None else 0.0
        try:
            view = await self.book.create(
                journal.call_id,
                function.name,
                content,
                ttl=max(mode.ttl, least),
                runs_once=runs_once,
            )
        except (LedgerDown, ContentUnreadable) as error:
            _LOG.warning("a call of %s could not become a task: %s", function.owner, error)
            raise MCPError(code=INTERNAL_ERROR, message="Tasks cannot be stored now; try again later") from error
        if view is None:
            raise MCPError(code=INVALID_PARAMS, message="Task not found")
        self.start()
        return {**self.book.handle(view), "resultType": "task"}

    async def _serve(self, tool: str, leg: TaskLeg) -> Finished | Suspended | Authored:
        """Serve a leg of a task, as if a client had sent it."""
        lifespans = self._legs.lifespans.get(asyncio.get_running_loop())
        incoming = incoming_of(leg, tool, lifespans[-1] if lifespans else None)
        served = REQUEST.set(incoming.record)
        request = incoming.request
        offered = offer(lambda: self._legs.context_of(request)) if request is not None else None
        try:
            return await self._calls.serve_task(tool, incoming, leg)
        finally:
            if incoming.record is not None:
                incoming.record.ended = True
            if offered is not None:
                take_back(offered)
            REQUEST.reset(served)
