"""Task workers: they claim a store's due tasks, serve one leg of each task, and store how the leg ended.

A `CallDelivery` decides which tasks are due. By default, this is a `Sweep` of the store; a `DistributedEngine` brings
its own delivery. Tasks are claimed, served and stored in the same way with every delivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData

from roundtrip.engine.leg import Authored, Finished, Suspended
from roundtrip.errors import BodyMistake, CallTakenOver, TokenRejected
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.lease import buried_processes, hear_of_deaths, holder_name, is_buried, lease_seconds
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.limited_logs import LimitedLog
from roundtrip.machine.journal import Journal, to_text
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallContent, CallFeature, ContentUnreadable, Tell
from roundtrip.stored.lease import END_SECONDS, CallLease
from roundtrip.stored.legs import ToolMissing, WorkerLeg
from roundtrip.stored.sweep import CallDelivery, Sweep, begin_work
from roundtrip.system import System

if TYPE_CHECKING:
    from roundtrip.stored.desk import ToolHost

logger = logging.getLogger("roundtrip")
# Limit how often these lines are logged, because each due task repeats them.
_LOG: Final = LimitedLog(logger)

_SKIP_SECONDS: Final = 10.0
"""How many seconds a worker skips a task that it cannot run."""
_PAUSE_SECONDS: Final = 1.0
"""How many seconds a worker skips a due task that it failed to claim."""
_HOLDER_BYTES: Final = 12
_MAX_RUNNING: Final = 100
_MAX_FOLLOWED: Final = 10_000
"""Maximum number of running tasks to check after workers have died."""
_STOP_SECONDS: Final = 10.0
_ENDING_SECONDS: Final = 1.0
"""How many seconds a leg may take to stop after its end has been stored."""

ServeTask = Callable[[WorkerLeg], Awaitable["Finished | Suspended | Authored"]]
"""Function that serves a task's leg. It returns a tool error as a result, and raises `MCPError` for a protocol error.
"""


@runtime_checkable
class DistributedEngine(Protocol):
    """Engine that delivers a server's tasks to workers on any machine. It replaces each worker's sweep."""

    def bind(self, worked_by: Callable[[], Any], book: CallBook, system: System) -> None:
        """Bind the engine to a server. The engine may replace the store that is used by `book`.

        Args:
            worked_by: Returns a context manager that runs the server in a worker of the engine, and yields the server's
                `CallWorker`.
            book: The tasks.
            system: The clocks and randomness.

        Raises:
            InvalidSignature: The engine already belongs to another server.
        """
        ...

    def start(self) -> None:
        """Begin to watch for due tasks on this event loop."""
        ...

    async def stop(self) -> None:
        """Stop watching for due tasks on this event loop."""
        ...

    def deliver(self, engine: CallWorker) -> CallDelivery:
        """Return the task delivery for this event loop's worker."""
        ...


class CallWorker:
    """One event loop's worker for the tasks in a store.

    Args:
        book: The tasks.
        serve: Serves a leg.
        tools: The server's tools.
        system: The clocks, ids and randomness.
        most: The maximum number of tasks to run at once. Waiting tasks do not count.
        deliver: Creates the delivery. If it is None, the worker sweeps the store.
    """

    def __init__(
        self,
        book: CallBook,
        serve: ServeTask,
        tools: ToolHost,
        system: System,
        *,
        most: int = _MAX_RUNNING,
        deliver: Callable[[CallWorker], CallDelivery] | None = None,
    ) -> None:
        self._book = book
        self._serve = serve
        self._tools = tools
        self.most = most
        self.holder = holder_name(system.entropy(_HOLDER_BYTES))
        self._running: dict[str, asyncio.Task[None]] = {}
        self._request_legs: dict[str, asyncio.Task[None]] = {}
        """The running legs that were begun by requests; see `begin_for_request`."""
        self._claims: dict[str, CallLease] = {}
        self._client_readers: set[str] = set()
        """The tools whose calls have waited for their client; each is logged once."""
        self._is_draining = False
        self._stop_listening = book.store.listen(self._check_changes)
        self._delivery: CallDelivery = (
            Sweep(book.own_calls or book.store, self._begin_all, system, room=lambda: self.most - len(self._running))
            if deliver is None
            else deliver(self)
        )
        loop = asyncio.get_running_loop()
        self._followers: set[asyncio.Task[None]] = set()
        self._stop_hearing = hear_of_deaths(lambda: loop.call_soon_threadsafe(self._follow_dead))
        if buried_processes():
            self._follow_dead()

    @property
    def is_busy(self) -> bool:
        """Return True while a leg is running."""
        return bool(self._running or self._request_legs)

    async def drain(self, seconds: float) -> None:
        """Stop claiming tasks, and wait at most the given number of seconds for the running legs to end."""
        self._is_draining = True
        self._delivery.pause()
        if self._running or self._request_legs:
            await asyncio.wait([*self._running.values(), *self._request_legs.values()], timeout=seconds)

    async def stop(self) -> None:
        """Give up all running tasks, so that other workers can continue them."""
        self._is_draining = True
        self._delivery.pause()
        self._stop_listening()
        self._stop_hearing()
        running = [*self._followers, *self._running.values(), *self._request_legs.values()]
        for task in running:
            task.cancel()
        with anyio.move_on_after(_STOP_SECONDS, shield=True):
            if running:
                await asyncio.wait(running)
            for feature in self._book.features:
                await feature.stop()
        await self._delivery.close()

    def _check_changes(self, call_id: str | None) -> None:
        """Check for due tasks, and check whether another process has cancelled running tasks."""
        claims = self._claims.values() if call_id is None else [self._claims.get(call_id)]
        for claim in list(claims):
            if claim is not None:
                claim.look_soon()
        self._delivery.look_soon()

    async def run(self, call_id: str) -> None:
        """Run a leg of a due task until the leg ends. Return at once if the task is not due.

        If the caller is cancelled, the worker gives up the task.
        """
        before = self._running.get(call_id) or self._request_legs.get(call_id)
        if before is not None:
            # The earlier leg may already have stored its end. This made the task due again.
            await asyncio.wait([before], timeout=_ENDING_SECONDS)
        if self._is_draining or call_id in self._running or call_id in self._request_legs:
            return
        leg = self._begin(call_id)
        try:
            await asyncio.wait([leg])
        finally:
            if not leg.done():
                leg.cancel()
                with anyio.move_on_after(_STOP_SECONDS, shield=True):
                    await asyncio.wait([leg])

    async def _begin_all(self, due: Sequence[str]) -> None:
        for call_id in due:
            if call_id not in self._running and call_id not in self._request_legs:
                self._begin(call_id)

    def _begin(self, call_id: str) -> asyncio.Task[None]:
        task = begin_work(self._claim_and_serve(call_id), f"task of call {call_id}")
        self._running[call_id] = task
        task.add_done_callback(partial(self._forget_leg, self._running, call_id))
        task.add_done_callback(lambda _: self._delivery.look_soon())
        return task

    def _follow_dead(self) -> None:
        """Start an asyncio task that makes the tasks of dead workers due again."""
        task = begin_work(self._end_leases_of_dead(), "follow dead workers")
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

    async def _end_leases_of_dead(self) -> None:
        try:
            for task in await self._book.store.list(limit=_MAX_FOLLOWED, states=[StoredState.RUNNING]):
                if is_buried(task.holder):
                    # Any change to the task, even an empty one, ends the dead worker's lease.
                    await self._book.change(task.call_id, lambda entry, now: None)
        except LedgerDown as error:
            _LOG.warning("the tasks of a dead worker continue only after their leases end: %s", error)

    async def _claim_and_serve(self, call_id: str) -> None:
        """Claim a task, and serve one leg of it."""

        tells: list[Tell] = []

        def claim_it(entry: CallEntry, now: float) -> tuple[CallEntry, float, CallContent, Journal] | Literal[False]:
            # If this worker cannot read the content or does not have the tool, another worker may be able to run the
            # task.
            content = self._book.seal.read(entry.content, call_id)
            journal = self._book.read_journal(content)
            if not entry.has_ended and not self._tools.has_tool(entry.tool, content.origin.version):
                raise ToolMissing
            self._book.record_time(now)
            features = self._book.features if entry.state is StoredState.DUE else ()
            looks = [feature.look(content, entry, now, holder=self.holder) for feature in features]
            tells[:] = [tell for tell in looks if tell is not None]
            if tells:
                entry.content = self._book.seal.write(content, call_id)
            is_due = entry.state is StoredState.DUE and content.is_continued
            if is_due and (content.origin.needs_request or self._tools.is_gated(entry.tool, content.origin.version)):
                leave_to_client(content, entry, now, holder=self.holder, features=features)
                entry.content = self._book.seal.write(content, call_id)
            return (entry, now, content, journal) if entry.claim(self.holder, now, lease=lease_seconds()) else False

        try:
            claimed = await self._book.change(call_id, claim_it)
        except ToolMissing:
            self._delivery.skip(call_id, _SKIP_SECONDS)
        except (ContentUnreadable, TokenRejected):
            self._delivery.skip(call_id, _SKIP_SECONDS)
            message = (
                "this server cannot read the stored task of call %s; all servers of a service must have the same "
                "name and the same keys"
            )
            _LOG.warning(message, call_id)
        except LedgerDown as error:
            # A store that rejects writes may still be readable. The task then remains due.
            self._delivery.skip(call_id, _PAUSE_SECONDS)
            _LOG.warning("the task of call %s cannot be run now: %s", call_id, error)
        else:
            for tell in tells if claimed is not None else ():
                tell()
            if claimed:
                entry, now, content, journal = claimed
                claim = CallLease(self._book, entry, now)
                await self._serve_leg(WorkerLeg(content, journal, claim, self._book.pinner_of(content)))
            elif claimed is None:
                # The store has no such task. A store that lost a task may still list it as due.
                self._delivery.skip(call_id, _PAUSE_SECONDS)

    def _forget_leg(self, legs: dict[str, asyncio.Task[None]], call_id: str, leg: asyncio.Task[None]) -> None:
        """Forget a leg that has ended. If the engine itself failed, log the error."""
        del legs[call_id]
        error = None if leg.cancelled() else leg.exception()
        # Either the leg was cancelled, or another worker took over the call while the leg was ending.
        if error is None or isinstance(error, CallTakenOver):
            return
        self._delivery.skip(call_id, _SKIP_SECONDS)
        if isinstance(error, LedgerDown):
            logger.error("the task of call %s continues only after its lease ends: %s", call_id, error)
        else:
            logger.error("a task worker failed; another worker will continue the task", exc_info=error)

    @property
    def has_room_for_request(self) -> bool:
        """Return True if a request may begin a leg."""
        return len(self._request_legs) < self.most

    def begin_for_request(self, leg: WorkerLeg, context: Context | None = None) -> asyncio.Task[None]:
        """Begin a leg for a request. The request has already claimed the task for this worker."""
        call_id = leg.claim.call_id
        work = begin_work(self._serve_leg(leg), f"call {call_id}", context)
        self._request_legs[call_id] = work
        work.add_done_callback(partial(self._forget_leg, self._request_legs, call_id))
        return work

    def abandon(self, call_id: str) -> None:
        """End a task's running leg without telling the store, as if this process had died."""
        claim = self._claims.get(call_id)
        if claim is not None:
            claim.lose()

    async def _serve_leg(self, leg: WorkerLeg) -> None:
        """Serve a leg, and store how it ended."""
        claim = leg.claim
        self._claims[claim.call_id] = claim
        claim.renew_in_time()
        try:
            end = await self._serve(leg)
        except MCPError as error:
            await self._end(leg, None, error.error)
        except ToolMissing:
            self._delivery.skip(claim.call_id, _SKIP_SECONDS)
            await claim.give_up()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await claim.give_up()
            raise
        else:
            if isinstance(end, Finished):
                await self._end(leg, end.value)
            else:
                await self._pause(leg, end)
        finally:
            self._claims.pop(claim.call_id, None)
            claim.close()

    async def _pause(self, leg: WorkerLeg, end: Suspended | Authored) -> None:
        """Store a leg's journal and open questions, and the times and signals that the task waits for."""
        if leg.written is None:
            raise BodyMistake("a task's leg has no journal")
        claim, journal = leg.claim, to_text(self._book.journals.write(leg.written))
        pause = leg.pause(end, journal, claim.clock())
        if pause.needs_client and leg.tool not in self._client_readers:
            self._client_readers.add(leg.tool)
            logger.info(
                "tool %r reads its client's request after an answer or an approval, so its calls wait until the client "
                "asks for the result; read the request before, in a function with Resolve(fn, remember=True)",
                leg.tool,
            )
        delivered = frozenset(leg.content.asked.answers)
        pause = self._book.prepare(pause, end, leg.content, claim.call_id)

        def park(content: CallContent, entry: CallEntry, now: float) -> None:
            content.pause(pause, entry, now, delivered=delivered)

        await claim.write_content(None, park, patience=END_SECONDS)

    async def _end(self, leg: WorkerLeg, result: dict[str, Any] | None, error: ErrorData | None = None) -> None:
        """Store the end of a call."""
        claim = leg.claim

        def end(content: CallContent, entry: CallEntry, now: float) -> None:
            content.result = result
            if leg.end_mark is not None:
                content.error = {"reason": leg.end_mark}
            if error is not None:
                content.error = error.model_dump(by_alias=True, mode="json", exclude_none=True)
                content.message = content.message or error.message
            entry.expires = entry.due = max(entry.expires, now + leg.kept_for)
            claim.drop_results(entry)

        event = StoredEvent.FINISH if error is None else StoredEvent.FAIL
        await claim.write_content(event, end, patience=END_SECONDS)


def leave_to_client(
    content: CallContent, entry: CallEntry, now: float, *, holder: str, features: Sequence[CallFeature] = ()
) -> None:
    """Change a call that is due, so that it waits for its client's next request. The call keeps its answers and step
    results.
    """
    if not entry.claim(holder, now, lease=0.0):
        return
    # `claim` counted a try, but tries must count only workers that die while they run the task.
    entry.tries -= 1
    content.needs_client = not content.asked.questions
    entry.apply(StoredEvent.ASK if content.asked.questions else StoredEvent.WAIT, now)
    for feature in features:
        feature.bring_forward(content, entry)
