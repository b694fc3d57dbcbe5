"""One server's task service: its methods, the engine on each event loop, and the legs that it serves."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ClientCapabilities

from roundtrip.engine.leg import Authored, Finished, HandedOver, JoinedCall, Suspended
from roundtrip.errors import InvalidSignature
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.tasks import CallEntry
from roundtrip.legs.requests import OFFERED, REQUEST, SKEW, Incoming, RequestRecord, holding
from roundtrip.limited_logs import LimitedLog
from roundtrip.machine.journal import Journal, to_text
from roundtrip.stored import request_legs
from roundtrip.stored.book import CallBook, StoredView
from roundtrip.stored.content import CallContent, CallOrigin, ContentUnreadable
from roundtrip.stored.legs import WorkerLeg, record_of
from roundtrip.stored.sweep import CallDelivery, OwnCalls
from roundtrip.stored.worker import CallWorker, DistributedEngine
from roundtrip.switches import OWN
from roundtrip.tools.failures import store_down
from roundtrip.tools.promises import OncePolicy, TaskMode
from roundtrip.tools.replies import written

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.stored.desk import ToolHost

_SECRET_BYTES: Final = 16
# Limit how often these lines are logged, because clients can trigger them.
_LOG: Final = LimitedLog(logging.getLogger("roundtrip"))


class CallService:
    """One server's task service. It is created with the first tool that runs as a task.

    Args:
        host: The server's tools, and the runner for their legs. The runner knows the server's event loops.
        book: The calls.
        engine: Delivers tasks to workers, so that workers need not poll the store.
        runs: False if other processes run the tasks; "own" if this process runs only its own clients' tasks.

    Raises:
        InvalidSignature: The distributed engine cannot serve this server.
    """

    def __init__(self, host: ToolHost, book: CallBook, *, engine: DistributedEngine | None, runs: bool | str) -> None:
        self._host = host
        self.legs = host.legs
        self._distributed = engine
        self.runs_tasks = runs
        """False if other processes run the stored calls; "own" if this process runs only its own clients' calls.
        """
        self.prepare: Callable[[CallContent, ServerRequestContext[Any, Any]], None] | None = None
        """Function that adds a feature's values to the content of a call before the call becomes a task."""
        self.book = book
        if engine is not None:
            self._bind(engine)
        self._delivery_engine = engine
        if runs == OWN:
            # A distributed engine would also deliver tasks whose clients use other processes.
            self._delivery_engine, self.book.own_calls = None, OwnCalls(self.book.store)
        self._engines: dict[asyncio.AbstractEventLoop, CallWorker] = {}
        self.stops_first: list[Callable[[], Awaitable[None]]] = []
        """Functions that stop other parts of the server on an event loop. They run before the tasks on this loop stop.
        """

    def _bind(self, distributed: DistributedEngine) -> None:
        effects = self.legs.parts.effects
        if effects.ledger.reach is Reach.PROCESS:
            raise InvalidSignature(
                f"task_engine={type(distributed).__name__}(...) needs a ledger that its workers can reach, got "
                f"{type(effects.ledger).__name__}; give the server a RedisLedger or a PostgresLedger"
            )
        distributed.bind(self._worked_by_others, self.book, self.legs.parts.system)

    @asynccontextmanager
    async def _worked_by_others(self) -> AsyncGenerator[CallWorker]:
        """Run the server in a distributed engine's worker. This worker calls `CallWorker.run`."""
        self.runs_tasks = False
        server = self._host.low_level
        async with server.lifespan(server):
            yield self._require_engine(deliver=_deliver_nothing)

    def start(self) -> None:
        """Run tasks on this event loop if the server's lifespan is active here. A rehearsal runs no tasks."""
        if self.legs.parts.effects.dry_run is not None:
            return
        if self._delivery_engine and self.legs.lifespans.get(asyncio.get_running_loop()):
            self._delivery_engine.start()
        if self.runs_tasks:
            self._start_engine()

    def _start_engine(self, **options: Any) -> CallWorker | None:
        loop = asyncio.get_running_loop()
        if loop not in self._engines and self.legs.lifespans.get(loop):
            system = self.legs.parts.system
            if self._delivery_engine is not None:
                self._delivery_engine.start()
                options = {"deliver": self._delivery_engine.deliver, **options}
            self._engines[loop] = CallWorker(self.book, self._serve, self._host, system, **options)
        return self._engines.get(loop)

    def _require_engine(self, **options: Any) -> CallWorker:
        engine = self._start_engine(**options)
        if engine is None:
            raise RuntimeError("tasks can be run only during the server's lifespan")
        return engine

    def _engine_of_requests(self) -> CallWorker | None:
        """Return the engine for legs that are begun by requests. If other processes run the tasks, the engine runs only
        the legs that requests begin.
        """
        self.start()
        if not self.runs_tasks:
            self._start_engine(deliver=_deliver_nothing)
        return self._engines.get(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Give up the tasks that run on this event loop."""
        for stop in self.stops_first:
            await stop()
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.stop()
        if self._delivery_engine is not None:
            await self._delivery_engine.stop()

    def abandon(self, call_id: str) -> None:
        """End a task's running leg as if its process had died. Only tests call this."""
        for engine in self._engines.values():
            engine.abandon(call_id)

    @asynccontextmanager
    async def working(self, concurrency: int) -> AsyncGenerator[CallWorker]:
        """Run tasks on this event loop inside the server's lifespan, even if the server otherwise leaves its tasks to
        other processes.

        Args:
            concurrency: The maximum number of tasks to run at once. Waiting tasks do not count.
        """
        await self.stop()
        self.book.own_calls, self._delivery_engine = None, self._distributed
        yield self._require_engine(most=concurrency)

    async def create(
        self, function: AskingFunction, ctx: ServerRequestContext[Any, Any], record: RequestRecord, *, tool: str
    ) -> dict[str, Any]:
        """Turn a request's call into a task and return the task's handle. If the call needs no task, return its result.

        Args:
            function: The tool's function.
            ctx: The request.
            record: The request's record.
            tool: The tool name that the client used.

        Raises:
            MCPError: The tool raised a protocol error, or the store cannot be used. In the second case, the client may
                try again.
        """
        journal, mode = record.journal_to_store, function.policy(TaskMode)
        if journal is None or mode is None:
            raise RuntimeError("a call without a journal cannot become a task")
        # A client may repeat the request while a token of the call is valid. The server must then find the existing
        # task.
        min_ttl = journal.end + SKEW - self.legs.parts.system.time() if function.policy(OncePolicy) is not None else 0.0
        content = self.content_of(function, ctx, journal)
        if self.prepare is not None:
            self.prepare(content, ctx)
        entry = await self.entry_of(function, tool, journal, content, ttl=max(mode.ttl, min_ttl))
        try:
            end = await self._run_first(entry, content, journal, mode.after, is_repeatable=record.journal is not None)
            view = end if end is not None else await self.book.add(entry, content)
        except (LedgerDown, ContentUnreadable) as error:
            _LOG.warning("a call of %s could not become a task: %s", function.owner, error)
            raise store_down("Tasks cannot be stored now") from error
        if view is None:
            raise MCPError(code=INVALID_PARAMS, message="Task not found")
        if not isinstance(view, StoredView):
            return {**view, "resultType": "complete"}
        self.start()
        return {**self.book.handle(view), "resultType": "task"}

    def content_of(
        self, function: AskingFunction, ctx: ServerRequestContext[Any, Any], journal: Journal
    ) -> CallContent:
        """Return the request data that later legs need, because they may have no request."""
        capabilities: ClientCapabilities | None = ctx.session.client_capabilities
        origin = CallOrigin(
            arguments=(ctx.params or {}).get("arguments") or {},
            capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {},
            protocol=ctx.protocol_version,
            principal=self.legs.parts.protection.principal(ctx),
            user=self.legs.parts.protection.user(ctx),
            secret=self.legs.parts.system.new_id(_SECRET_BYTES),
            version=function.version,
            needs_request=function.needs_request,
        )
        return CallContent(origin, to_text(self.book.journals.write(journal)))

    async def entry_of(
        self, function: AskingFunction, tool: str, journal: Journal, content: CallContent, *, ttl: float
    ) -> CallEntry:
        """Return a new entry for a function's call. The entry is not stored yet.

        Args:
            function: The function.
            tool: The tool name that the client used.
            journal: The call's journal.
            content: The call's content.
            ttl: The seconds after which the store forgets the call.
        """
        once, principal = function.policy(OncePolicy), content.origin.principal
        runs_once = once is not None and once.on_unknown == "fail"
        entry = await self.book.entry(journal.call_id, tool, content, ttl=ttl, runs_once=runs_once)
        # A store with a size limit uses the account to prevent one owner from using all of the space.
        entry.account = f"tool {function.name}" if principal is None else f"caller {principal}"
        return entry

    async def _run_first(
        self, entry: CallEntry, content: CallContent, journal: Journal, seconds: float | None, *, is_repeatable: bool
    ) -> dict[str, Any] | StoredView | None:
        """Run the body, and wait for it at most the given number of seconds; see `run_in_foreground`. Return None if
        the call must begin as a task.
        """
        if seconds is None:
            self.start()
            return None
        # Even if other processes run the tasks, the body runs here until it has to wait.
        engine = self._engine_of_requests()
        if engine is None or not engine.has_room_for_request:
            return None
        if is_repeatable and (known := await self.book.view(entry.call_id)) is not None:
            return known
        return await request_legs.run_in_foreground(engine, self.book, entry, content, journal, seconds=seconds)

    async def is_visible(self, view: StoredView, request: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a stored call's tool is still visible to a request from the client."""
        return await self._host.is_visible(view.entry.tool, view.content.origin.version, request)

    async def run_with_client(self, call_id: str, request: ServerRequestContext[Any, Any]) -> None:
        """Run a leg that needs its client. The leg runs in a request from that client; see `request_legs`."""
        engine = self._engine_of_requests()
        if engine is not None:
            await request_legs.run_with_client(engine, self.book, call_id, request)

    async def signal(self, call_id: str, name: str, payload: Any) -> bool:
        """Store a signal for a task; see `Server.signal`."""
        try:
            plain = json.loads(json.dumps(payload))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"server.signal(..., {name!r}): the payload must be JSON: {error}") from None
        return await self.book.signal(call_id, name, plain)

    async def _serve(self, leg: WorkerLeg) -> Finished | Suspended | Authored:
        """Serve a task's leg as if a client had requested it. A finished leg returns its result in wire form."""
        origin, lifespans = leg.content.origin, self.legs.lifespans.get(asyncio.get_running_loop())
        record = record_of(leg, lifespans[-1] if lifespans else None)
        known = {name: answer for name, answer in leg.responses.items() if answer is not None}
        incoming = Incoming(record.context, record, known or None, leg.journal.authored or None)
        with holding(REQUEST, record), holding(OFFERED, lambda: self.legs.context_of(record.context)):
            try:
                end = await self._host.serve_stored(leg.tool, origin.arguments, incoming, origin.version)
            finally:
                record.ended = True
        if isinstance(end, HandedOver | JoinedCall):
            raise RuntimeError("a leg of a task became another task")
        if not isinstance(end, Finished):
            return end
        result = written(end.value, origin.protocol)
        del result["resultType"]
        return Finished(result)


def _deliver_nothing(engine: CallWorker) -> CallDelivery:
    """Return a delivery without tasks, for an engine whose legs are begun by other code."""
    return CallDelivery()
