"""The protocol of stored calls: workers that claim one task, run its body, store its steps, and end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from roundtrip.engine.computed import NotedValue
from roundtrip.engine.leg import Finished
from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.lease import LEASE_SECONDS
from roundtrip.ledger.machines import ENDED, TASK_MACHINE, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.legs.parts import Effects, Parts
from roundtrip.machine.journal import Journal, to_text
from roundtrip.server.settings import parts_of
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallContent, CallOrigin
from roundtrip.stored.desk import ToolHost
from roundtrip.stored.lease import END_SECONDS, CallLease
from roundtrip.stored.legs import WorkerLeg
from roundtrip.stored.sweep import CallDelivery
from roundtrip.stored.worker import CallWorker
from roundtrip.system import System
from tests.exhaustive.explorer import Operations, Worker
from tests.simulation.loop import Process, at_once

__all__ = ["StoredCall"]

_CALL: Final = "AAAAAAAAAAAA"
_TOOL: Final = "ship"
_STEP: Final = "parcel"
_LIFE_SECONDS: Final = 1e7

_SYSTEM: Final = System(time=lambda: 0.0, monotonic=lambda: 0.0, entropy=bytes)
_PARTS: Final = parts_of(
    "shop",
    given=None,
    ttl=None,
    max_age=None,
    trace=False,
    ledger=None,
    bus=None,
    system=_SYSTEM,
    keys=[bytes(32)],
    encrypt=False,
    principal=False,
    audience=None,
    seal_keys=None,
    max_token_bytes=10_000,
    max_journal_bytes=10_000,
)


class _Tasks:
    """What a worker does with tasks of the store. Announcements are lost, which a store may do."""

    def __init__(self, scene: StoredCall, worker: Worker) -> None:
        self._scene = scene
        self._worker = worker
        self._tasks = scene.memory.tasks

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        return await self._scene.operations.ask("load", lambda: at_once(self._tasks.load(call_id)), _told)

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        sent = entry.copy()

        def save() -> bool:
            before, _ = at_once(self._tasks.load(sent.call_id))
            saved = at_once(self._tasks.save(sent, version=version))
            if saved and before is not None:
                self._scene.wrote(before, sent, self._worker)
            return saved

        return await self._scene.operations.ask(f"save {sent.state} {len(sent.notes)}", save)

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        return lambda: None


class _Connection(MemoryLedger):
    """Ledger of one worker, of which only the tasks are used; in memory, so that contents are readable here."""

    def __init__(self, tasks: _Tasks) -> None:
        super().__init__()
        self.tasks = cast("Any", tasks)


class StoredCall:
    """Scene in which workers look for one task that is due, until it has ended.

    Args:
        operations: The operations of all workers.
        runs_once: True for a body that must not begin twice; otherwise it has a step.
        cancels: True if the last worker is the client, who cancels the task.
    """

    seconds = LEASE_SECONDS + END_SECONDS + 1

    def __init__(self, operations: Operations, *, runs_once: bool, cancels: bool = False) -> None:
        self.has_waited = False
        self.operations = operations
        self._runs_once = runs_once
        self._cancels = cancels
        loop = operations.loop
        self.memory = MemoryLedger(system=System(time=loop.time, monotonic=loop.time))
        self._bell = dict[Process, asyncio.Event]()
        self.broken: list[str] = []
        self.bodies: list[int] = []
        self.steps: list[int] = []
        self._claimed: dict[int, int] = {}
        """The workers by the epochs that they have claimed."""
        journal = _PARTS.protection.journals.write(Journal(_CALL, 0.0, _LIFE_SECONDS, _LIFE_SECONDS, 1, 0))
        content = CallContent(CallOrigin({}, {}, "2026-07-28", None, "secret", None), to_text(journal))
        book = CallBook(_PARTS._replace(effects=_effects(_Connection(_Tasks(self, Worker(-1, loop.world))))), "shop")
        entry = CallEntry(
            _CALL,
            _TOOL,
            created=0.0,
            expires=_LIFE_SECONDS,
            runs_once=runs_once,
            content=book.seal.write(content, _CALL),
        )
        at_once(self.memory.tasks.add(entry))

    async def work(self, worker: Worker) -> str:
        loop, operations = self.operations.loop, self.operations
        bell = self._bell[worker.process] = asyncio.Event()
        system = System(time=loop.time, monotonic=loop.time, entropy=worker.name_of, sleep=asyncio.sleep)
        parts: Parts = _PARTS._replace(system=system, effects=_effects(_Connection(_Tasks(self, worker))))
        book = CallBook(parts, "shop")
        if self._cancels and worker.number == len(operations.workers) - 1:
            await book.cancel(_CALL)
            return "cancelled"

        async def serve(leg: WorkerLeg) -> Finished:
            return Finished(await self._ship(worker, leg))

        calls = cast("ToolHost", _AllTools())
        # The scene says what is run.
        engine = CallWorker(book, serve, calls, system, deliver=lambda _: CallDelivery())
        while True:
            bell.clear()
            worker.forget()
            worker.only_looks = True
            view = await book.view(_CALL)
            worker.only_looks = False
            if view is None:
                return "forgotten"
            entry = view.entry
            if entry.state in ENDED:
                return str(entry.state)
            if entry.state is StoredState.DUE:
                await engine.run(_CALL)
                continue
            wait = max(entry.due - loop.time(), 0.0)
            with_timer = loop.call_later(wait + 0.001, bell.set)
            await bell.wait()
            with_timer.cancel()

    async def _ship(self, worker: Worker, leg: WorkerLeg) -> dict[str, Any]:
        """Do what the engine of a leg does with a body of one step."""
        return await leg.claim.hold(self._run(worker, leg.claim))

    async def _run(self, worker: Worker, claim: CallLease) -> dict[str, Any]:
        await claim.start_body()
        self.bodies.append(worker.number)
        value = next((noted.value for noted in claim.noted if noted.key == _STEP), None)
        if value is None:
            await claim.require_held()
            if not self._runs_once and self._stored():
                self.broken.append("a stored step began again")
            await self.operations.ask("the step", lambda: self.steps.append(worker.number))
            value = f"parcel of {'abc'[worker.number]}"
            if not self._runs_once:
                await claim.note(NotedValue(0, _STEP, value))
        return {"content": [{"type": "text", "text": value}]}

    def _entry(self) -> CallEntry:
        entry, now = at_once(self.memory.tasks.load(_CALL))
        if entry is None:
            raise AssertionError("the store has lost the task")
        entry.advance(now)
        return entry

    def _stored(self) -> bool:
        return bool(self._entry().notes)

    def wrote(self, before: CallEntry, after: CallEntry, writer: Worker) -> None:
        """Check a write, and announce it."""
        if after.epoch < before.epoch or (before.state in TASK_MACHINE.final):
            self.broken.append(f"{before.state}, epoch {before.epoch} became {after.state}, epoch {after.epoch}")
        if after.epoch > before.epoch:
            self._claimed[after.epoch] = writer.number
        elif before.state is StoredState.RUNNING and after.state in (StoredState.RUNNING, StoredState.COMPLETED):
            is_own = self._claimed[after.epoch] == writer.number
            self.broken += [] if is_own else [f"a worker without the lease wrote {after.state}"]
        # An ended task keeps only the names of its last steps.
        if before.notes and after.notes and before.notes != after.notes and not after.has_ended:
            self.broken.append("a stored step was stored again")
        for process, bell in self._bell.items():
            with self.operations.loop.running(process):
                bell.set()

    def store(self) -> tuple[Any, ...]:
        entry, now = at_once(self.memory.tasks.load(_CALL))
        if entry is None:
            return ()
        left = max(round(entry.due - now, 2), 0) if entry.state is StoredState.RUNNING else 0
        return entry.state, entry.epoch, entry.tries, entry.has_begun, tuple(entry.notes), entry.content, left

    def holds(self, worker: Worker) -> Any:
        entry = self._entry()
        return entry.state is StoredState.RUNNING and self._claimed.get(entry.epoch) == worker.number

    def judge(self, workers: Sequence[Worker], *, ended: bool) -> list[str]:
        broken = list(self.broken)
        entry = self._entry()
        if self._runs_once and len(self.bodies) > 1:
            broken.append(f"the body began {len(self.bodies)} times")
        if entry.state is StoredState.COMPLETED and not self.steps:
            broken.append("it is completed, and no step has run")
        if entry.state is StoredState.LOST and not self.has_waited:
            broken.append("it is lost, and no lease has ended")
        outcomes = {worker.outcome for worker in workers if worker.outcome is not None} - {"cancelled"}
        if len(outcomes) > 1:
            broken.append(f"workers saw several ends: {sorted(outcomes)}")
        return broken


class _AllTools:
    """Tools of a server that has each, and no visibility gate."""

    def has_tool(self, name: str, version: str | None) -> bool:
        return True

    def is_gated(self, name: str, version: str | None) -> bool:
        return False


def _effects(ledger: MemoryLedger) -> Effects:
    return Effects(ledger, _PARTS.effects.tracers, _PARTS.effects.bus, system=_SYSTEM)


def _told(answer: tuple[CallEntry | None, float]) -> str:
    entry, _ = answer
    return "" if entry is None else f"{entry.state} {entry.epoch} {entry.version} {len(entry.notes)} {entry.has_begun}"
