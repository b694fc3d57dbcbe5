"""The protocol of a tool that runs once: copies of one leg, on several instances, with one ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from mcp_types import CallToolResult, TextContent

from roundtrip.engine.leg import Finished
from roundtrip.engine.outcomes import record_outcome
from roundtrip.errors import BodyNotRun, OutcomeUnknown, StillRunning
from roundtrip.ledger import MemoryLedger, waiting
from roundtrip.ledger.contract import ClaimAnswer, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.lease import LEASE_SECONDS
from roundtrip.ledger.machines import EntryState
from roundtrip.ledger.waiting import Waiting
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import State
from roundtrip.once import exactly_once
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.system import System
from tests.exhaustive.explorer import Operations, Worker
from tests.simulation.loop import Process, at_once

__all__ = ["KEY", "PayingOnce", "patient", "text_of"]

T = TypeVar("T")

KEY = "call"
_LOOKS = ("seen", "renew")


def patient(patch: pytest.MonkeyPatch) -> None:
    """Let legs wait for announcements and the ends of leases alone, as each look in between would be another state."""
    patch.setattr(waiting, "_LOOK_SECONDS", 1e6)
    patch.setattr(exactly_once, "PATIENCE_SECONDS", 1e6)


class _Memory(MemoryLedger):
    """The ledger itself."""

    @property
    def entry(self) -> LedgerEntry | None:
        return self._find(KEY, self._clock())

    def change(self, key: str, work: Callable[[LedgerEntry, float], T]) -> T:
        return at_once(self._change(key, work))

    def next_epoch(self, now: float) -> int:
        return self._next_epoch(now)


class _Connection(EntryLedger):
    """Connection of one worker to the ledger."""

    reach = Reach.FLEET

    async def aclose(self) -> None:
        pass

    def __init__(
        self, memory: _Memory, operations: Operations, others: list[tuple[Process, Waiting]], journals: set[str]
    ) -> None:
        self._journals = journals
        self._memory = memory
        self._operations = operations
        self._waiting = Waiting()
        self._others = others
        others.append((operations.here.process, self._waiting))

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        def change() -> T:
            before = self._memory.entry
            state = None if before is None else before.state
            result = self._memory.change(key, work)
            after = self._memory.entry
            if after is not None and "journal" in after.notes:
                self._journals.add(after.notes["journal"])
            if state is not (None if after is None else after.state):
                for process, waiting in self._others:
                    with self._operations.loop.running(process):
                        waiting.wake(key)
            return result

        name = work.__qualname__.split(".")[-1]
        return await self._operations.ask(name, change, _told, is_look=name in _LOOKS)

    def _next_epoch(self, now: float) -> int:
        return self._memory.next_epoch(now)


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    return block.text if isinstance(block, TextContent) else ""


def _journal() -> Journal:
    return Journal(KEY, 0.0, 3600.0, 3600.0, 1, 0)


def _told(answer: Any) -> str:
    if isinstance(answer, ClaimAnswer):
        return f"{answer.status} {answer.result} {answer.epoch} {sorted(answer.notes.items())}"
    return repr(answer)


class PayingOnce:
    """Scene in which each worker serves a copy of the last leg of one call."""

    seconds = LEASE_SECONDS + 1

    def __init__(self, operations: Operations) -> None:
        self.has_waited = False
        self.operations = operations
        loop = operations.loop
        self.memory = _Memory(system=System(time=loop.time, monotonic=loop.time))
        self._listening: list[tuple[Process, Waiting]] = []
        self.holders: dict[int, str] = {}
        self.bodies: list[int] = []
        self.ended: list[int] = []
        self.journals: set[str] = set()
        """The notes with a journal that the ledger ever had."""

    def connection(self) -> _Connection:
        """Return the running worker's connection to the ledger."""
        return _Connection(self.memory, self.operations, self._listening, self.journals)

    async def work(self, worker: Worker) -> str:
        loop = self.operations.loop
        ledger = self.connection()
        system = System(time=loop.time, monotonic=loop.time, entropy=worker.name_of)
        while True:
            worker.forget()
            claim = LedgerClaim(ledger, KEY, "pay", keep=3600, system=system)
            self.holders[worker.number] = worker.name_of(12).hex()
            call = Call(KEY, state=State.RESOLVING)
            try:
                recalled = await claim.begin("the answers", at_once=False, remember=_journal)
                if recalled is not None:
                    return f"result of {text_of(recalled)}"
                work = claim.hold(self._pay(worker, claim, call))
                end = await record_outcome(claim, call, work, computed=tuple)
                return f"result of {text_of(end.value)}" if isinstance(end, Finished) else end.reason
            except OutcomeUnknown:
                return "unknown"
            except StillRunning:
                continue
            except BodyNotRun as error:
                return type(error).__name__

    async def _pay(self, worker: Worker, claim: LedgerClaim, call: Call) -> Finished:
        await claim.start_body()
        call.state = State.EXECUTING
        self.bodies.append(worker.number)
        await self.operations.ask("the body", lambda: self.ended.append(worker.number))
        return Finished(CallToolResult(content=[TextContent(text="abc"[worker.number])]))

    def store(self) -> tuple[Any, ...]:
        entry = self.memory.entry
        if entry is None:
            return ("none", len(self.bodies), len(self.ended))
        left = round(entry.lapses - self.operations.loop.time(), 3)
        return entry.state, entry.epoch, max(left, 0), entry.result, len(self.bodies), len(self.ended)

    def holds(self, worker: Worker) -> Any:
        entry = self.memory.entry
        holder = "" if entry is None else entry.holder
        is_of_worker = holder.startswith(worker.name_of(2).hex()[:2])
        return is_of_worker, holder == self.holders.get(worker.number), worker.number in self.bodies

    def judge(self, workers: Sequence[Worker], *, ended: bool) -> list[str]:
        broken: list[str] = []
        if len(self.bodies) > 1:
            broken.append(f"the body began {len(self.bodies)} times")
        outcomes = {worker.outcome for worker in workers if worker.outcome is not None}
        results = {outcome for outcome in outcomes if outcome.startswith("result")}
        if len(results) > 1:
            broken.append(f"there are several results: {sorted(results)}")
        if results and not self.ended:
            broken.append("there is a result, and no body has ended")
        if "unknown" in outcomes and not self.has_waited:
            broken.append("the outcome is unknown, and no lease has ended")
        entry = self.memory.entry
        is_held = entry is not None and entry.state in (EntryState.HELD, EntryState.RUNNING)
        if ended and is_held and all(worker.process.is_alive for worker in workers):
            broken.append("all workers have ended, and one still has the claim")
        return broken
