"""Worker threads that a leg can keep, and runs of several functions in one thread.

anyio may choose a different thread for each function, so these threads are not anyio's. `anyio.from_thread` still works
in them, because they set the private variables that it reads. A test fails if anyio moves these variables.
"""

import asyncio
import atexit
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any, Final

import anyio
import anyio.from_thread
from anyio._core._eventloop import set_current_async_library, threadlocals  # pyright: ignore[reportUnknownVariableType]
from anyio.lowlevel import current_token

from roundtrip.resolvers.threads import PlainRun
from roundtrip.threads.slots import SHARED_SECONDS

logger = logging.getLogger("roundtrip")

_IDLE_SECONDS: Final = 2.0
"""How long an idle thread waits for work before it ends."""
_MOMENT_SECONDS: Final = SHARED_SECONDS / 4
"""The longest time for which the loop blocks to wait for a thread."""
_RAISED_LATE: Final = "a function raised an exception in a thread whose call had ended"


class _WorkStage(Enum):
    NEW = "new"
    DROPPED = "dropped"
    RUNNING = "running"
    LEFT = "left"
    ENDED = "ended"


class Work:
    """One run of a function in a worker thread. Create it in the leg's asyncio task.

    Args:
        call: The function.
        may_be_left: True if the leg may leave the thread behind.
        context: The context variables that the function sees; by default a copy of the asyncio task's variables.
    """

    _value: Any
    _gone: tuple[asyncio.Event, Callable[[], None]]

    def __init__(self, call: Callable[[], Any], *, may_be_left: bool, context: Context | None = None) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        # Guards the stage, which both the thread and the loop change.
        self._lock = threading.Lock()
        self._stage = _WorkStage.NEW
        self._error: BaseException | None = None
        self._scopes: tuple[anyio.CancelScope, ...] = ()
        self._watcher: queue.SimpleQueue[None] | None = None
        """Receives an item when the function returns; set only while the loop blocks and waits for the thread."""
        self._ended = 0.0
        self.began: float | None = None
        self.waiter: asyncio.Future[None] = self._loop.create_future()
        """Done when the function has returned."""
        self.context = context or copy_context()
        self.token = current_token()
        """The loop's token for `anyio.from_thread`."""
        self.scope = anyio.CancelScope()
        """The cancel scope that `anyio.from_thread` checks for cancellation."""
        if may_be_left or context is not None:
            self.context.run(_WORK.set, self if may_be_left else None)

    @property
    def has_ended(self) -> bool:
        """Return True if the function has returned."""
        return self._stage is _WorkStage.ENDED

    @property
    def seconds(self) -> float:
        """Return how many seconds the function took."""
        return self._ended - (self.began or 0.0)

    # In the thread.

    def run(self) -> None:
        """Run the function, and store its result."""
        with self._lock:
            if self._stage is _WorkStage.DROPPED:
                return
            self._stage = _WorkStage.RUNNING
        self.began = monotonic()
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._ended = monotonic()

    def report_end(self) -> None:
        """Tell the loop that the function has returned."""
        context = self.context
        # The context variables may refer to this object.
        del self.context
        with self._lock:
            was_left = self._stage is _WorkStage.LEFT
            self._stage = _WorkStage.ENDED
            watcher = self._watcher
        if was_left:
            error, self._error = self._error, None
            try:
                if error is not None:
                    context.run(logger.info, _RAISED_LATE, exc_info=error)
            finally:
                self._loop.call_soon_threadsafe(self._end_left, context=Context())
        elif watcher is not None:
            watcher.put(None)
        else:
            self._loop.call_soon_threadsafe(self._end, context=Context())

    # On the loop.

    def _end(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)

    def _end_left(self) -> None:
        gone, give_back = self._gone
        give_back()
        gone.set()

    def wait_briefly(self) -> bool:
        """Block the loop for a moment, or until the function returns. Return True if the function has returned."""
        # Do not use a lock: blockbuster, which the SDK's tests use, forbids every `acquire` on a loop, however short.
        watcher: queue.SimpleQueue[None] = queue.SimpleQueue()
        with self._lock:
            if self.has_ended:
                # The thread has already notified the loop, which soon sets the waiter.
                return True
            self._watcher = watcher
        try:
            watcher.get(timeout=_MOMENT_SECONDS)
        except queue.Empty:
            with self._lock:
                self._watcher = None
                return self.has_ended
        return True

    async def wait(self) -> None:
        """Wait until the function has returned, even if the leg is cancelled."""
        try:
            await self.waiter
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                while not self.has_ended:
                    self.waiter = self._loop.create_future()
                    # The shield does not stop cancellations that come from asyncio itself.
                    with suppress(asyncio.CancelledError):
                        await self.waiter
            raise

    def leave(self, give_back: Callable[[], None]) -> asyncio.Event | None:
        """Leave the thread behind if it is running the function. Otherwise make sure that the function never starts.

        Args:
            give_back: Called on the loop after the function has returned.

        Returns:
            An event that is set after the function has returned; None if the function is not running.
        """
        with self._lock:
            if self._stage is _WorkStage.RUNNING:
                self._stage = _WorkStage.LEFT
                gone = asyncio.Event()
                self._gone = gone, give_back
                for scope in self._scopes:
                    scope.cancel()
                return gone
            if self._stage is _WorkStage.NEW:
                self._stage = _WorkStage.DROPPED
        return None

    @contextmanager
    def unless_left(self) -> Generator[None]:
        """Wrap the work that the thread hands to its event loop."""
        with anyio.CancelScope() as scope:
            if self._stage is _WorkStage.LEFT:
                scope.cancel()
            self._scopes += (scope,)
            try:
                yield
            finally:
                self._scopes = tuple(one for one in self._scopes if one is not scope)

    def result(self) -> Any:
        """Return the function's result, or raise its exception."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # The exception's traceback refers to this frame.
            del error


_WORK: Final[ContextVar[Work | None]] = ContextVar("roundtrip_work", default=None)
"""The `Work` that runs in this thread. Nested code reads it; see `unless_left`."""


def unless_left() -> AbstractContextManager[None]:
    """Wrap the work that a thread hands to its event loop. The work is cancelled when the leg leaves the thread behind.

    anyio runs such work in one of the leg's cancel scopes. When the leg leaves the thread behind, it exits that scope,
    so the scope can no longer cancel the work.
    """
    work = _WORK.get()
    return nullcontext() if work is None else work.unless_left()


class Worker:
    """A worker thread. It belongs to one leg at a time."""

    __slots__ = ("__weakref__", "_held_for", "_is_given_back", "_jobs", "_thread", "left")

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Work | bool] = queue.SimpleQueue()
        self._is_given_back = False
        self._held_for = 0
        """The number of functions for which the thread is kept. Only the thread changes this number."""
        self.left: asyncio.Event | None = None
        """Set when the left-behind function has returned; None if the leg left no function behind."""
        # Make it a daemon thread, so that an idle thread does not delay the interpreter's exit. `_wait_for_all` waits
        # for threads that work.
        self._thread = threading.Thread(target=self._work, name="roundtrip worker thread", daemon=True)

    @staticmethod
    def take() -> "Worker":
        """Return an idle worker thread, or start a new thread."""
        try:
            # Take the thread that was used last, so that the other idle threads end after a while.
            worker = _IDLE.pop()
        except IndexError:
            worker = Worker()
            worker._thread.start()
        worker.left = None
        return worker

    @staticmethod
    def here() -> "Worker":
        """Return the worker thread in which the caller runs."""
        return _HERE.worker

    @property
    def is_here(self) -> bool:
        """Return True if the caller runs in this thread."""
        return getattr(_HERE, "worker", None) is self

    @property
    def is_left(self) -> bool:
        """Return True while the thread runs a function that its leg has left behind."""
        return self.left is not None and not self.left.is_set()

    def hold(self) -> "Worker":
        """Keep the thread for one more function. Only code in the thread may call this."""
        self._held_for += 1
        return self

    def let_go(self) -> None:
        """Keep the thread for one function fewer. Only code in the thread may call this."""
        self._held_for -= 1

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        """Run a function for which the thread is kept, even if the leg is cancelled."""
        # This run takes no slot. If it needed a slot while all slots were taken, legs could not end.
        work = Work(call, may_be_left=False, context=context)
        with work.scope:
            work.scope.shield = True
            self.do(work)
            await work.wait()
        return work.result()

    def do(self, work: Work) -> None:
        """Run a function after the thread's earlier jobs."""
        self._jobs.put(work)

    def give_back(self, *, busy: bool) -> None:
        """Let another leg take the thread after its last job."""
        if busy or self._held_for:
            self._jobs.put(True)
        else:
            _IDLE.append(self)

    def _work(self) -> None:
        _ALL.add(self)
        _HERE.worker = self
        try:
            while True:
                try:
                    job = self._jobs.get(timeout=_IDLE_SECONDS)
                except queue.Empty:
                    try:
                        _IDLE.remove(self)
                    except ValueError:
                        # A leg still has this thread, but has no work for it now.
                        continue
                    return
                if job is True:
                    self._is_given_back = True
                elif job is False:
                    return
                else:
                    _run(job)
                    # Otherwise an idle thread would keep the whole call in memory.
                    del job
                if self._is_given_back and not self._held_for:
                    self._is_given_back = False
                    _IDLE.append(self)
        finally:
            _ALL.discard(self)

    def end(self) -> None:
        """Run the jobs that the thread already has, and end the thread."""
        self._jobs.put(False)
        self._thread.join()


def _leave_library() -> None:
    set_current_async_library(None)


def _run(work: Work) -> None:
    threadlocals.current_token = work.token
    threadlocals.current_cancel_scope = work.scope
    try:
        # Tell libraries that no event loop runs in a worker thread. anyio does the same in its threads.
        work.context.run(_leave_library)
        work.context.run(work.run)
    finally:
        del threadlocals.current_token, threadlocals.current_cancel_scope
    # The event loop may be closed.
    with suppress(RuntimeError):
        work.report_end()


@dataclass(slots=True, eq=False, repr=False)
class FunctionRun:
    """A run of several functions in one thread, without a return to the event loop between them.

    If one of the author's functions makes other functions wait for more than a millisecond, the event loop may run the
    remaining functions. The thread then passes the running function's value to the loop, and starts no other function.
    """

    _run: PlainRun
    # Held while the thread or the loop uses `_run`.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float | None = None
    _timer: asyncio.TimerHandle | None = None
    # True once the loop has taken over the remaining functions.
    _is_taken: bool = False
    _context: Context | None = None
    """The leg's context variables, for the functions that the loop runs."""

    # In the thread.

    def run(self) -> None:
        """Run functions until the loop must continue."""
        lock, functions = self._lock, self._run
        while True:
            with lock:
                call = None if self._is_taken or _is_cancelled() else functions.next()
                if call is None:
                    return
                self._began = monotonic()
            try:
                # Each function gets its own copy of the leg's context variables.
                value = copy_context().run(call)
            finally:
                self._began = None
            with lock:
                if self._is_taken:
                    functions.value = value
                    return
                if not functions.settle(value):
                    return
            del value, call

    # On the loop.

    def watch(self, delay: float = SHARED_SECONDS) -> None:
        """After `delay` seconds, take over the remaining functions if the running function is still delaying others."""
        # Later calls come from the timer. Give the timer an empty context, because the loop keeps a timer's context
        # until the timer fires.
        self._context = self._context or copy_context()
        self._timer = asyncio.get_running_loop().call_later(delay, self._take_if_slow, context=Context())

    def end(self) -> None:
        """Stop the thread from starting another function."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_taken = True
        self._context = None

    def _take_if_slow(self) -> None:
        """Take over the remaining functions if the running function has delayed others for too long."""
        left = SHARED_SECONDS
        # If the lock is taken, the thread is using `_run`, so check again later.
        if self._lock.acquire(blocking=False):
            try:
                if self._began is not None:
                    if not self._run.delays_others():
                        return
                    left -= monotonic() - self._began
                    self._is_taken = left <= 0
            finally:
                self._lock.release()
        if self._is_taken and self._context is not None:
            self._context.run(self._run.continue_beside)
        else:
            self.watch(left)


def _is_cancelled() -> bool:
    """Return True if this thread's leg was cancelled."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    return False


_HERE: Final = threading.local()
_IDLE: Final[deque[Worker]] = deque()
_ALL: Final[set[Worker]] = set()


@atexit.register
def _wait_for_all() -> None:  # pyright: ignore[reportUnusedFunction]
    """Wait for running functions to return before the interpreter exits."""
    for worker in [*_ALL]:
        worker.end()


def _forget_all() -> None:
    _IDLE.clear()
    _ALL.clear()


if hasattr(os, "register_at_fork"):
    # A forked process has no worker threads.
    os.register_at_fork(after_in_child=_forget_all)
