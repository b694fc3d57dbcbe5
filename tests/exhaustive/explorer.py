"""Run a protocol in every possible order, and judge each of its states.

A protocol is real code: workers, each a process of the simulation, that operate on one store. Between two operations a
worker only computes. So an order is a list of choices: which waiting operation happens next, which worker dies before
or after its operation, which response is lost, and when leases end. The code has no snapshots, so each order runs from
its beginning. A state that was reached before is not continued: the code decides by what the store has answered, so
equal answers mean equal workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from roundtrip.ledger.contract import LedgerDown
from tests.simulation.loop import Process, SimulatedLoop

__all__ = ["Action", "Bounds", "Exploration", "Operations", "Scene", "Worker", "explore"]

T = TypeVar("T")

_FOREVER: Final = 1e9
_READS: Final = ("load", "seen")
"""Operations after which a death is the same as before them."""
_MOST_TICKS: Final = 400
"""Timers that may pass, one after another, while nothing else can happen."""


class Bounds(NamedTuple):
    """How much may go wrong."""

    workers: int = 3
    deaths: int = 2
    lapses: int = 1
    """How often time passes until all leases have ended, while workers are in the middle of something."""
    losses: int = 0
    """How many responses of the store are lost."""


class Action(NamedTuple):
    """One choice."""

    what: str
    worker: int = -1
    operation: int = 0

    def __str__(self) -> str:
        return self.what if self.worker < 0 else f"{self.what} {'abc'[self.worker]}"


@dataclass(eq=False)
class _Waiting:
    name: str
    writes: bool
    work: Callable[[], Any]
    answered: asyncio.Future[Any]


@dataclass(eq=False)
class Worker:
    """One worker, and everything that it has seen."""

    number: int
    process: Process
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])
    seen: list[str] = field(default_factory=list[str])
    looked: str = ""
    """What it saw last, of what it looks at again and again."""
    only_looks: bool = False
    """True while it remembers only the last of what it sees."""
    outcome: str | None = None
    tries: int = 0
    """How often it has begun again."""

    def name_of(self, size: int) -> bytes:
        """Return bytes that stand for the worker in its current try, in place of random ones."""
        return bytes([self.number + 1, self.tries]) * (size // 2)

    def forget(self) -> None:
        """Note that it begins again, and nothing which it has seen matters any more."""
        self.tries += 1
        self.seen.clear()
        self.looked = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what decides the worker's future."""
        digest = hashlib.blake2b("\n".join(self.seen).encode(), digest_size=12).hexdigest()
        if not self.process.is_alive:
            return ("dead",)
        return self.outcome, digest, self.looked, tuple(one.name for one in self.waiting)


class _First(random.Random):
    """Chance that always takes the first."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


class ExploredLoop(SimulatedLoop):
    """Event loop whose time passes only when the exploration says so."""

    def __init__(self) -> None:
        super().__init__(_First(), ends=_FOREVER)

    def settle(self) -> None:
        """Run until no worker computes."""
        asyncio._set_running_loop(self)
        try:
            while self._busy:
                self._run_once()
        finally:
            asyncio._set_running_loop(None)

    def tick(self) -> bool:
        """Let the next timer pass; return False if there is none."""
        self._drop_cancelled()
        if not self._timers:
            return False
        self._pass_time()
        return True

    def lapse(self, seconds: float) -> None:
        """Let time pass for all, and then all timers of that time."""
        self._now += seconds
        self._drop_cancelled()
        if self._timers and self._timers[0][0] <= self._now:
            self._pass_time()

    def _drop_cancelled(self) -> None:
        self._timers = [one for one in self._timers if not one[3].cancelled() and one[2].is_alive]
        self._timers.sort()


class Operations:
    """Operations of all workers that wait to happen."""

    def __init__(self, loop: ExploredLoop) -> None:
        self.loop = loop
        self.workers: list[Worker] = []

    @property
    def here(self) -> Worker:
        """Return the worker that computes."""
        return next(worker for worker in self.workers if worker.process is self.loop.process)

    async def ask(
        self, name: str, work: Callable[[], T], told: Callable[[T], str] = repr, *, is_look: bool = False
    ) -> T:
        """Let an operation happen when the exploration says so.

        Args:
            name: Its name.
            work: Does it, at once.
            told: Says what a worker learns from its result.
            is_look: True if the worker remembers only the last one of its kind.
        """
        worker = self.here
        is_look = is_look or worker.only_looks

        def do() -> T:
            result = work()
            if is_look:
                worker.looked = f"{name}: {told(result)}"
            else:
                worker.seen.append(f"{name}: {told(result)}")
            return result

        waiting = _Waiting(name, name not in _READS, do, self.loop.create_future())
        worker.waiting.append(waiting)
        try:
            return await waiting.answered
        finally:
            if waiting in worker.waiting:
                worker.waiting.remove(waiting)


class Scene(Protocol):
    """One run of a protocol, from its beginning."""

    seconds: float
    """The time after which every lease has ended."""
    has_waited: bool
    """True once time has passed."""

    async def work(self, worker: Worker) -> str:
        """Do what a worker does, and return its outcome."""
        ...

    def store(self) -> tuple[Any, ...]:
        """Return the state of the store, without the names of its holders."""
        ...

    def holds(self, worker: Worker) -> Any:
        """Return what the store has of a worker."""
        ...

    def judge(self, workers: Sequence[Worker], *, ended: bool) -> list[str]:
        """Return the promises that are broken."""
        ...


class Exploration(NamedTuple):
    """What an exploration has found."""

    states: int
    transitions: int
    ends: int
    broken: str | None
    """The shortest way to a state that breaks a promise, and the promise."""

    def __str__(self) -> str:
        return f"{self.states} states, {self.transitions} transitions, {self.ends} ends"


class _Run:
    """One run along a list of actions."""

    def __init__(self, make: Callable[[Operations], Scene], bounds: Bounds) -> None:
        self.loop = ExploredLoop()
        self.operations = Operations(self.loop)
        self.bounds = bounds
        self.deaths = self.lapses = self.losses = 0
        self.scene = make(self.operations)
        for number in range(bounds.workers):
            worker = Worker(number, Process(f"worker {number}"))
            self.operations.workers.append(worker)
            with self.loop.running(worker.process):
                self.loop.create_task(self._work(worker))
        self.loop.settle()

    async def _work(self, worker: Worker) -> None:
        worker.outcome = await self.scene.work(worker)

    @property
    def workers(self) -> list[Worker]:
        return self.operations.workers

    @property
    def is_over(self) -> bool:
        return all(worker.outcome is not None or not worker.process.is_alive for worker in self.workers)

    def actions(self) -> list[Action]:
        """Return what can happen now."""
        found: list[Action] = []
        for worker in self.workers:
            if not worker.process.is_alive:
                continue
            for place in range(len(worker.waiting)):
                found.append(Action("does", worker.number, place))
                if self.losses < self.bounds.losses:
                    found.append(Action("does without a response", worker.number, place))
            if worker.outcome is None and self.deaths < self.bounds.deaths:
                found.append(Action("dies", worker.number))
                found += [
                    Action("dies after", worker.number, place)
                    for place, waiting in enumerate(worker.waiting)
                    if waiting.writes
                ]
        if not self.is_over:
            if self.lapses < self.bounds.lapses:
                found.append(Action("leases end"))
            if not any(worker.waiting for worker in self.workers if worker.process.is_alive):
                found.append(Action("time passes"))
        return found

    def take(self, action: Action) -> None:
        """Let something happen."""
        loop = self.loop
        if action.worker >= 0:
            worker = self.workers[action.worker]
            if action.what == "dies":
                self._kill(worker)
            else:
                waiting = worker.waiting.pop(action.operation)
                result, error = None, None
                try:
                    result = waiting.work()
                except LedgerDown as raised:
                    error = raised
                if action.what == "dies after":
                    self._kill(worker)
                else:
                    if action.what == "does without a response":
                        self.losses += 1
                        worker.seen.append(f"{waiting.name}: lost")
                        error = LedgerDown("the response was lost")
                    with loop.running(worker.process):
                        if error is not None:
                            waiting.answered.set_exception(error)
                        elif not waiting.answered.done():
                            waiting.answered.set_result(result)
        else:
            self.scene.has_waited = True
            if action.what == "leases end":
                self.lapses += 1
                loop.lapse(self.scene.seconds)
            else:
                for _ in range(_MOST_TICKS):
                    if not loop.tick():
                        break
                    loop.settle()
                    if self.is_over or any(worker.waiting for worker in self.workers if worker.process.is_alive):
                        break
        loop.settle()

    def _kill(self, worker: Worker) -> None:
        self.deaths += 1
        self.loop.kill(worker.process)
        worker.waiting.clear()

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what decides the future; workers are alike, so their order does not matter."""
        workers = sorted(repr((worker.key, self.scene.holds(worker))) for worker in self.workers)
        return self.scene.store(), tuple(workers), self.deaths, self.lapses, self.losses

    def close(self) -> None:
        self.loop.bury([self.loop.world, *(worker.process for worker in self.workers)])
        self.loop.close()


def explore(make: Callable[[Operations], Scene], bounds: Bounds, *, most: int = 1_000_000) -> Exploration:
    """Run a protocol in every order within the bounds, the shortest orders first.

    Args:
        make: Makes a run of the protocol.
        bounds: How much may go wrong.
        most: The number of states after which it fails.
    """
    seen: set[tuple[Any, ...]] = set()
    transitions = ends = 0
    queue: deque[tuple[Action, ...]] = deque([()])
    while queue:
        way = queue.popleft()
        run = _Run(make, bounds)
        try:
            for action in way:
                run.take(action)
            if run.key in seen:
                continue
            seen.add(run.key)
            if len(seen) > most:
                raise AssertionError(f"more than {most} states")
            following = run.actions()
            broken = [*run.scene.judge(run.workers, ended=run.is_over), *run.loop.failures]
            if not following and not run.is_over:
                broken.append("nothing can happen any more")
            if broken:
                steps = ", ".join(map(str, way))
                return Exploration(len(seen), transitions, ends, f"{steps}: {'; '.join(broken)}")
            ends += run.is_over
            if run.is_over:
                continue
            transitions += len(following)
            queue.extend((*way, action) for action in following)
        finally:
            run.close()
    return Exploration(len(seen), transitions, ends, None)
