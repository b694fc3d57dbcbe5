"""Event loop with a time of its own, on which several simulated processes run in an order that a seed decides."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, Final, TypeVar, cast

from anyio._backends import _asyncio as anyio_on_asyncio

__all__ = ["Process", "SimulatedLoop", "WorldStandsStill", "at_once"]

T = TypeVar("T")


_MOST_WAITS: Final = 100


class WorldStandsStill(AssertionError):
    """No process has anything to do, or the time of the simulation is over."""


class Process:
    """Simulated process. What it has scheduled never runs once it is dead, not even the `finally` of a function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.is_leaving = False
        """True once it has been asked to end."""
        self.is_queued = False
        """True while the loop has it among the processes to run."""
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return self.name


class SimulatedLoop(asyncio.BaseEventLoop):
    """Event loop of all processes of a simulation.

    Callbacks of one process run in their order, as asyncio promises. The next process is taken at random. Time stands
    still while a callback is ready, and then jumps to the next timer.

    Args:
        chance: Decides the order.
        ends: The time at which the simulation fails.
    """

    def __init__(self, chance: random.Random, *, ends: float) -> None:
        super().__init__()
        self._chance = chance
        self._ends = ends
        self._now = 0.0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, Process, asyncio.Handle]] = []
        self._busy: list[Process] = []
        self.steps = 0
        """The number of callbacks that have run."""
        self.world = Process("the world")
        self.process = self.world
        """The process that runs."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._failed)
        self.failures: list[str] = []
        self._is_burying = False

    def time(self) -> float:
        """Return the simulated time."""
        return self._now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        self.process.tasks.append(task)
        if len(self.process.tasks) > 256:
            self.process.tasks = [one for one in self.process.tasks if not one.done()]
        return task

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._is_burying and "task" in context and "exception" not in context:
            # A task that still waits is gone, as its process is.
            return
        self.failures.append(f"{self.process}: {context.get('message')}: {context.get('exception')!r}")

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Let the running process call a function."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(self.process, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Do the same: the simulation has one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Let the running process call a function after some time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Let the running process call a function at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), self.process, handle))
        return handle

    def post(self, process: Process, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        """Let another process call a function after some time, if it is alive then."""
        handle = asyncio.Handle(callback, args, self, Context())
        heapq.heappush(self._timers, (self._now + delay, next(self._numbers), process, handle))

    @contextmanager
    def running(self, process: Process) -> Generator[None]:
        """Run a block as a process."""
        before, self.process = self.process, process
        try:
            yield
        finally:
            self.process = before

    def kill(self, process: Process) -> None:
        """End a process at once."""
        process.is_alive = False
        process.ready.clear()

    def pause(self, process: Process, seconds: float) -> None:
        """Let a process stand still for some time. What it missed comes at once then."""
        process.is_paused = True

        def resume() -> None:
            process.is_paused = False
            self._queue(process)

        self.post(self.world, seconds, resume)

    def _add(self, process: Process, handle: asyncio.Handle) -> None:
        if process.is_alive:
            process.ready.append(handle)
            self._queue(process)

    def _queue(self, process: Process) -> None:
        if process.ready and not process.is_queued and not process.is_paused:
            process.is_queued = True
            self._busy.append(process)

    def _run_once(self) -> None:
        if not self._busy:
            self._pass_time()
        place = self._chance.randrange(len(self._busy)) if len(self._busy) > 1 else 0
        process = self._busy[place]
        if process.ready and not process.is_paused:
            handle = process.ready.popleft()
            if not handle.cancelled():
                self.steps += 1
                self.process = process
                handle._run()  # what a loop does with a handle, which has no public method for it
                self.process = self.world
        if not process.ready or process.is_paused:
            process.is_queued = False
            self._busy[place], self._busy[-1] = self._busy[-1], self._busy[place]
            self._busy.pop()

    def _pass_time(self) -> None:
        while not self._busy:
            if not self._timers:
                raise WorldStandsStill("all processes wait for each other")
            when, _, process, handle = heapq.heappop(self._timers)
            if handle.cancelled() or not process.is_alive:
                continue
            self._now = max(self._now, when)
            if self._now > self._ends:
                raise WorldStandsStill(f"the simulation goes on after {self._ends:g} s")
            self._add(process, handle)
            # Everything of this moment is ready at once, and in any order.
            while self._timers and self._timers[0][0] <= self._now:
                _, _, process, handle = heapq.heappop(self._timers)
                if not handle.cancelled():
                    self._add(process, handle)

    def bury(self, processes: list[Process]) -> None:
        """Close the coroutines of processes, at the end, so that nothing of them runs later."""
        grave = Process("nothing")
        grave.is_alive = False
        self._is_burying = True
        # As they close, some begin others, which need an event loop, and never run. asyncio exports it to event loops.
        asyncio._set_running_loop(self)
        try:
            with self.running(grave):
                for process in (*processes, grave):
                    for task in process.tasks:
                        # anyio keeps its states, and what they hold, until their tasks are done, and has no other way.
                        cast("Any", anyio_on_asyncio)._task_states.pop(task, None)
                        if not task.done():
                            _close(task.get_coro())
                    process.tasks.clear()
        finally:
            asyncio._set_running_loop(None)


def _close(coro: Any) -> None:
    """Close a coroutine, which may wait in a `finally` again and again, although its process is gone."""
    for _ in range(_MOST_WAITS):
        with suppress(BaseException):
            coro.close()
            return


def at_once(work: Awaitable[T]) -> T:
    """Run a coroutine that waits for nothing."""
    step: Any = work
    try:
        step.send(None)
    except StopIteration as ended:
        return ended.value
    raise RuntimeError("it must not wait")
