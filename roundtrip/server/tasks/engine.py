"""Run the tasks of a store: claim what is due, serve a leg of it, and store how the leg ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError

from roundtrip.engine.leg import Authored, Finished, Suspended
from roundtrip.errors import BodyMistake, CallTakenOver, TokenRejected
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.tasks import TaskEntry, change_task
from roundtrip.machine.journal import Journal, from_text, to_text
from roundtrip.machine.tasks import TaskEvent
from roundtrip.questions.wire import PendingQuestion, UrlQuestion
from roundtrip.server.limited_logs import LimitedLog
from roundtrip.server.tasks.book import TaskBook
from roundtrip.server.tasks.claim import TaskClaim, lease_seconds
from roundtrip.server.tasks.content import ContentUnreadable, TaskContent
from roundtrip.server.tasks.legs import TaskLeg
from roundtrip.system import System

__all__ = ["ServeTask", "TaskEngine"]

logger = logging.getLogger("roundtrip")
_UNREADABLE_LOG: Final = LimitedLog(logger)

_SWEEP_SECONDS: Final = 1.0
"""Time between two looks at what is due, in case an announcement was lost; up to twice as long, at random."""
_PAGE_SECONDS: Final = 2.0
"""Time between two looks at a page that a user is visiting."""
_SKIP_SECONDS: Final = 10.0
_HOLDER_BYTES: Final = 12
_MAX_RUNNING: Final = 100
_STOP_SECONDS: Final = 10.0

ServeTask = Callable[[str, TaskLeg], Awaitable["Finished | Suspended | Authored"]]
"""Serves a leg of a tool's task. An error of the tool is a result; it raises `MCPError` for a protocol error."""


class _NotHere(Exception):
    """This build does not have the tool of a task."""


class TaskEngine:
    """Worker of one event loop for the tasks of a store.

    Args:
        book: The tasks.
        serve: Serves a leg.
        knows: Returns True if a tool of this name and version is served here.
        system: The clocks, ids and randomness.
        most: The number of tasks to run at once. Tasks that wait do not count.
    """

    def __init__(
        self,
        book: TaskBook,
        serve: ServeTask,
        system: System,
        *,
        knows: Callable[[str, str | None], bool],
        most: int = _MAX_RUNNING,
    ) -> None:
        self._book = book
        self._serve = serve
        self._knows = knows
        self._skipped: dict[str, float] = {}
        """Tasks that this worker leaves to others, until a time."""
        self._system = system
        self._most = most
        self._holder = system.entropy(_HOLDER_BYTES).hex()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._claims: dict[str, TaskClaim] = {}
        self._bell = asyncio.Event()
        self._is_down = False
        self._stop_listening = book.store.listen(self._changed)
        loop = asyncio.get_running_loop()
        self._worker = loop.create_task(self._work(), name="roundtrip: run tasks", context=Context())
        self._renewals = loop.create_task(self._renew(), name="roundtrip: renew leases of tasks", context=Context())

    async def stop(self) -> None:
        """Give up all running tasks, so that other workers continue them."""
        self._stop_listening()
        running = [self._worker, self._renewals, *self._running.values()]
        for task in running:
            task.cancel()
        with anyio.move_on_after(_STOP_SECONDS, shield=True):
            await asyncio.wait(running)

    def _changed(self, call_id: str | None) -> None:
        """Look at what is due, and at a running task that another process may have cancelled."""
        found = self._claims.values() if call_id is None else [self._claims.get(call_id)]
        for claim in list(found):
            if claim is not None:
                claim.look_soon()
        self._bell.set()

    async def _work(self) -> None:
        while True:
            self._bell.clear()
            # At random, so that workers do not look at once.
            wait = _SWEEP_SECONDS * (1 + self._system.entropy(1)[0] / 256)
            free = self._most - len(self._running)
            if free > 0:
                try:
                    now = self._system.monotonic()
                    self._skipped = {call_id: until for call_id, until in self._skipped.items() if until > now}
                    due, following = await self._book.store.due(free + len(self._skipped))
                    self._is_down = False
                except Exception as error:
                    due, following = [], None
                    if not self._is_down:
                        self._is_down = True
                        known = isinstance(error, LedgerDown)
                        message = "tasks cannot be run, and this is not logged again until they can: %s"
                        logger.error(message, error, exc_info=None if known else error)
                for call_id in due:
                    if call_id not in self._running and call_id not in self._skipped:
                        self._begin(call_id)
                if following is not None:
                    wait = min(wait, max(0.0, following))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), wait)

    def _begin(self, call_id: str) -> None:
        task = asyncio.get_running_loop().create_task(
            self._run(call_id), name=f"roundtrip: task of call {call_id}", context=Context()
        )
        self._running[call_id] = task

        def ended(task: asyncio.Task[None]) -> None:
            self._running.pop(call_id, None)
            self._bell.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("a worker of tasks failed; another one continues the task", exc_info=error)

        task.add_done_callback(ended)

    async def _renew(self) -> None:
        while True:
            await self._system.sleep(lease_seconds() / 3)
            for claim in list(self._claims.values()):
                claim.renew_soon()

    async def _run(self, call_id: str) -> None:
        """Claim a task, and serve one leg of it."""

        def claim_it(entry: TaskEntry, now: float) -> tuple[TaskEntry, TaskContent, Journal] | None:
            # Another worker may have the key, the tool, or a newer version of the format.
            content = self._book.seal.read(entry.content, call_id)
            journal = self._book.journals.read(from_text(content.journal))
            if not entry.is_final and not self._knows(entry.tool, content.version):
                raise _NotHere
            return (entry, content, journal) if entry.claim(self._holder, now, lease=lease_seconds()) else None

        try:
            claimed = await change_task(self._book.store, call_id, claim_it)
            if claimed is not None:
                entry, content, journal = claimed
                await self._serve_leg(entry, content, journal, TaskClaim(self._book, entry))
        except _NotHere:
            self._skip(call_id)
        except (ContentUnreadable, TokenRejected):
            self._skip(call_id)
            _UNREADABLE_LOG.warning(
                "the store has a task of call %s that this server cannot read; give all workers the same keys",
                call_id,
            )
        except CallTakenOver:
            # Cancelled, or continued by another worker, as the leg ended.
            return
        except LedgerDown as error:
            logger.error("a task of call %s goes on when its lease has ended: %s", call_id, error)

    def _skip(self, call_id: str) -> None:
        """Leave a task to other workers for a while."""
        self._skipped[call_id] = self._system.monotonic() + _SKIP_SECONDS

    async def _serve_leg(self, entry: TaskEntry, content: TaskContent, journal: Journal, claim: TaskClaim) -> None:
        book, call_id = self._book, entry.call_id
        leg = TaskLeg(content, journal, claim, task_id=book.ids.of(call_id), expires=entry.expires)
        self._claims[call_id] = claim
        try:
            end = await self._serve(entry.tool, leg)
        except MCPError as error:
            if not claim.is_taken_over:
                await self._fail(claim, error)
            return
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._give_up(entry)
            raise
        else:
            if claim.is_taken_over:
                return
            if isinstance(end, Finished):
                await self._finish(claim, end.value)
            else:
                await self._park(claim, leg, end)
        finally:
            self._claims.pop(call_id, None)
            claim.close()

    async def _finish(self, claim: TaskClaim, result: dict[str, Any]) -> None:
        def finish(content: TaskContent, entry: TaskEntry, now: float) -> None:
            content.result = result
            entry.notes.clear()

        await claim.write_content(TaskEvent.FINISH, finish)

    async def _fail(self, claim: TaskClaim, error: MCPError) -> None:
        def fail(content: TaskContent, entry: TaskEntry, now: float) -> None:
            content.error = error.error.model_dump(by_alias=True, mode="json", exclude_none=True)
            content.message = content.message or error.error.message
            entry.notes.clear()

        await claim.write_content(TaskEvent.FAIL, fail)

    async def _park(self, claim: TaskClaim, leg: TaskLeg, end: Suspended | Authored) -> None:
        """Store the journal of a leg, its open questions, and what it waits for."""
        written = leg.written
        if written is None:
            raise BodyMistake("a leg of a task has no journal")
        journal = to_text(self._book.journals.write(written))
        now = self._system.time()
        questions: dict[str, tuple[Any, bytes]] = {}
        times: list[float] = []
        signals: list[str] = []
        if isinstance(end, Suspended):
            for name, waiting in end.questions.items():
                if _is_visited(waiting):
                    times.append(now + _PAGE_SECONDS)
                else:
                    questions[name] = waiting.sent(), waiting.asked.pin
            for wait in end.waits:
                if wait.until is not None:
                    times.append(wait.until)
                if wait.signal is not None:
                    signals.append(wait.signal)
        else:
            requests = end.result.input_requests or {}
            questions = {
                name: (request.model_dump(by_alias=True, mode="json", exclude_none=True), b"")
                for name, request in requests.items()
            }
            if not questions:
                times.append(now + _PAGE_SECONDS)
        delivered = set(leg.content.answers)
        event = TaskEvent.ASK if questions else TaskEvent.WAIT

        def park(content: TaskContent, entry: TaskEntry, now: float) -> None:
            content.journal, content.is_fresh = journal, False
            open_before = {name: key for key, name in content.names.items()}
            # Answers that came while the leg ran count, if their questions are still the same.
            late = {
                name: content.answers[name]
                for name, (_, pin) in questions.items()
                if name in content.answers and name not in delivered and content.answered.get(name) == pin.hex()
            }
            shown, names, pins = {}, {}, {}
            for name, (request, pin) in questions.items():
                if name in late:
                    continue
                key = open_before.get(name)
                # A question keeps its key while it is the same one, and no answer to it was read.
                if key is None or name in delivered or content.pins.get(key) != pin.hex():
                    key = content.fresh_key(name)
                shown[key], names[key], pins[key] = request, name, pin.hex()
            content.questions, content.names, content.pins = shown, names, pins
            content.answers = late
            content.answered = {name: content.answered[name] for name in late}
            content.waits = signals
            entry.park(event, now, due=min(times, default=None))
            if late and not shown:
                entry.apply(TaskEvent.WAKE, now)
            if any(name in content.signals for name in signals):
                # It came before the wait.
                entry.apply(TaskEvent.WAKE, now)

        await claim.write_content(event, park)

    async def _give_up(self, entry: TaskEntry) -> None:
        """Release the lease of a task, as it was claimed, before the leg has ended."""

        def give_up(stored: TaskEntry, now: float) -> None:
            if not stored.is_held(entry.holder, entry.epoch):
                return
            if stored.runs_once and stored.has_begun:
                stored.apply(TaskEvent.LOSE, now)
            else:
                stored.give_up(now)

        try:
            await change_task(self._book.store, entry.call_id, give_up)
        except LedgerDown as error:
            logger.error("a worker could not release a task of call %s: %s", entry.call_id, error)


def _is_visited(waiting: PendingQuestion) -> bool:
    """Return True if the user agreed to visit a page, and its `done` decides if the user has finished."""
    question = waiting.question
    return waiting.consented and isinstance(question, UrlQuestion) and question.done is not None
