"""Worker threads that a leg can hold, and several functions in one trip to a thread.

anyio chooses another thread for each function, so these threads are not anyio's. In them `anyio.from_thread` works as
in its own: they set what it reads there, for which it has no public name. A test fails if anyio moves it.
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
"""Time after which a thread without work ends."""
_MOMENT_SECONDS: Final = SHARED_SECONDS / 4
"""The most time that the loop itself waits for a thread."""
_RAISED_LATE: Final = "a function raised an exception in a thread whose call had ended"


class _WorkStage(Enum):
    NEW = "new"
    DROPPED = "dropped"
    RUNNING = "running"
    LEFT = "left"
    ENDED = "ended"


class Work:
    """One run of a function in a worker thread. Create it in the leg's task.

    Args:
        call: The function.
        may_be_left: True if the thread may be left behind.
        context: The context variables that the function sees; by default a copy of the task's.
    """

    _value: Any
    _gone: tuple[asyncio.Event, Callable[[], None]]

    def __init__(self, call: Callable[[], Any], *, may_be_left: bool, context: Context | None = None) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        # Held to change the stage, which the thread and the loop do.
        self._lock = threading.Lock()
        self._stage = _WorkStage.NEW
        self._error: BaseException | None = None
        self._scopes: tuple[anyio.CancelScope, ...] = ()
        self._watcher: queue.SimpleQueue[None] | None = None
        """Receives an item when the function has returned, while the loop itself waits for the thread."""
        self._ended = 0.0
        self.began: float | None = None
        self.waiter: asyncio.Future[None] = self._loop.create_future()
        """Done when the function has returned."""
        self.context = context or copy_context()
        self.token = current_token()
        """The loop's token for `anyio.from_thread`."""
        self.scope = anyio.CancelScope()
        """The scope whose cancellation `anyio.from_thread` passes on."""
        if may_be_left or context is not None:
            self.context.run(_WORK.set, self if may_be_left else None)

    @property
    def has_ended(self) -> bool:
        """Return True if the function has returned, in time."""
        return self._stage is _WorkStage.ENDED

    @property
    def seconds(self) -> float:
        """Return the seconds that the function took."""
        return self._ended - (self.began or 0.0)

    # In the thread.

    def run(self) -> None:
        """Run the function, and keep its result."""
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
        # It may refer to this work.
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
        """Block until the function has returned, for a moment at most; return True if it has."""
        # A lock would do. But blockbuster, which the SDK's tests use, forbids every `acquire` on a loop, however short.
        watcher: queue.SimpleQueue[None] = queue.SimpleQueue()
        with self._lock:
            if self.has_ended:
                # It has told the loop already, which ends the waiter soon.
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
        """Wait until the function has returned, also if the leg is cancelled."""
        try:
            await self.waiter
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                while not self.has_ended:
                    self.waiter = self._loop.create_future()
                    # Another cancellation, from asyncio itself.
                    with suppress(asyncio.CancelledError):
                        await self.waiter
            raise

    def leave(self, give_back: Callable[[], None]) -> asyncio.Event | None:
        """Leave the thread behind if it runs the function. Never begin the function if it does not.

        Args:
            give_back: Called on the loop when the thread has ended the function.

        Returns:
            An event that is set then; None if the function does not run.
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
        """Surround work that the thread hands to its event loop."""
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
            # Its traceback holds this frame.
            del error


_WORK: Final[ContextVar[Work | None]] = ContextVar("roundtrip_work", default=None)
"""The function that runs in this thread. Code deep in the function reads it; see `unless_left`."""


def unless_left() -> AbstractContextManager[None]:
    """Surround work that a thread hands to its event loop: it is cancelled when the thread is left behind.

    anyio runs it in a cancel scope of the leg. The leg leaves that scope, which would then never cancel the work.
    """
    work = _WORK.get()
    return nullcontext() if work is None else work.unless_left()


class Worker:
    """Worker thread. It belongs to one leg at a time."""

    __slots__ = ("__weakref__", "_held_for", "_is_given_back", "_jobs", "_thread", "left")

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Work | bool] = queue.SimpleQueue()
        self._is_given_back = False
        self._held_for = 0
        """The number of functions for which it is kept. Only the thread changes it."""
        self.left: asyncio.Event | None = None
        """Set when the function has ended that its leg has left behind, if there is one."""
        # A daemon, so that an idle one does not delay the interpreter's end; `_wait_for_all` waits for the others.
        self._thread = threading.Thread(target=self._work, name="roundtrip worker thread", daemon=True)

    @staticmethod
    def take() -> "Worker":
        """Return an idle worker thread, or a new one."""
        try:
            # The one that was used last: the others end after a while.
            worker = _IDLE.pop()
        except IndexError:
            worker = Worker()
            worker._thread.start()
        worker.left = None
        return worker

    @staticmethod
    def here() -> "Worker":
        """Return the worker thread that calls this."""
        return _HERE.worker

    @property
    def is_here(self) -> bool:
        """Return True in this thread."""
        return getattr(_HERE, "worker", None) is self

    @property
    def is_left(self) -> bool:
        """Return True while it runs a function that its leg has left behind."""
        return self.left is not None and not self.left.is_set()

    def hold(self) -> "Worker":
        """Keep it for one more function. Code in it calls this."""
        self._held_for += 1
        return self

    def let_go(self) -> None:
        """Keep it for one function less. Code in it calls this."""
        self._held_for -= 1

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        """Run a function for which it is kept, even if the leg is cancelled."""
        # It takes no slot: if all were in use, legs could not end.
        work = Work(call, may_be_left=False, context=context)
        with work.scope:
            work.scope.shield = True
            self.do(work)
            await work.wait()
        return work.result()

    def do(self, work: Work) -> None:
        """Run a function after those that the thread already has."""
        self._jobs.put(work)

    def give_back(self, *, busy: bool) -> None:
        """Let another leg have the thread, as soon as its last job has ended."""
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
                        # A leg holds it, and waits for something else.
                        continue
                    return
                if job is True:
                    self._is_given_back = True
                elif job is False:
                    return
                else:
                    _run(job)
                    # It refers to the whole call.
                    del job
                if self._is_given_back and not self._held_for:
                    self._is_given_back = False
                    _IDLE.append(self)
        finally:
            _ALL.discard(self)

    def end(self) -> None:
        """Run the jobs that the thread has, and end it."""
        self._jobs.put(False)
        self._thread.join()


def _leave_library() -> None:
    set_current_async_library(None)


def _run(work: Work) -> None:
    threadlocals.current_token = work.token
    threadlocals.current_cancel_scope = work.scope
    try:
        # As anyio does: no event loop runs in a thread.
        work.context.run(_leave_library)
        work.context.run(work.run)
    finally:
        del threadlocals.current_token, threadlocals.current_cancel_scope
    # The loop may be gone.
    with suppress(RuntimeError):
        work.report_end()


@dataclass(slots=True, eq=False, repr=False)
class Drive:
    """Run of several functions in one thread, one after the other, without the event loop in between.

    While a function of the author runs, the loop may take the work back: it does so if the function delays others for
    longer than a millisecond. The thread then leaves the function's value to the loop, and starts no other.
    """

    _run: PlainRun
    # Held while the thread or the loop uses the functions.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float | None = None
    _timer: asyncio.TimerHandle | None = None
    # True once the loop has taken the work back.
    _is_taken: bool = False
    _context: Context | None = None
    """The context variables of the leg, with which the loop continues."""

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
                # Each function has its own copy of the leg's context variables.
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
        """Take the work back after some time, if the running function then delays others."""
        # Later calls come from the timer, whose context is empty, as the loop keeps a timer until its time.
        self._context = self._context or copy_context()
        self._timer = asyncio.get_running_loop().call_later(delay, self._take_if_slow, context=Context())

    def end(self) -> None:
        """Keep the thread from starting another function, if it still runs one."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_taken = True
        self._context = None

    def _take_if_slow(self) -> None:
        """Take the work back if the running function has delayed others for too long."""
        left = SHARED_SECONDS
        # Otherwise the thread uses the functions.
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
    """Return True if the leg that this thread works for was cancelled."""
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
    """Let functions that run end before the interpreter does."""
    for worker in [*_ALL]:
        worker.end()


def _forget_all() -> None:
    _IDLE.clear()
    _ALL.clear()


if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads.
    os.register_at_fork(after_in_child=_forget_all)
