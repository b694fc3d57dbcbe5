"""Run plain nodes in one thread, one after the other, without the event loop in between.

A thread runs each function and settles its node. While a function of the author runs, the loop may take the work back:
it does so if the function delays others for longer than a millisecond. The thread then leaves the function's value to
the loop, and starts no other.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio.from_thread
from anyio.abc import TaskGroup

from roundtrip.resolvers.plan import Node
from roundtrip.resolvers.threads import SHARED_SECONDS

if TYPE_CHECKING:
    from roundtrip.resolvers.scheduler import Scheduler


@dataclass(slots=True, eq=False, repr=False)
class Drive:
    """Run of a scheduler's plain nodes in one thread. The thread or the loop uses it, and never both at once.

    Args:
        scheduler: The scheduler.
        group: Runs other nodes when one takes long; without it, they wait.
    """

    _scheduler: "Scheduler"
    _group: TaskGroup | None
    node: Node | None = None
    """The node whose function runs, or has run and is not settled."""
    is_beside: bool = False
    """True once other nodes run beside it."""
    is_last: bool = False
    """True once the function after all nodes has begun."""
    is_over: bool = False
    """True once its value is settled."""
    is_open: bool = False
    """True if a function has begun, and is not settled."""
    value: Any = None
    """Its value, if that is left to the loop."""
    # Held while the thread or the loop uses the scheduler.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _began: float | None = None
    _timer: asyncio.TimerHandle | None = None
    _has_ended: bool = False
    # True once the loop has taken the work back.
    _is_taken: bool = False

    async def around(self, run: Awaitable[None]) -> None:
        """Await `run` in a thread, until the loop has to go on.

        Raises:
            BaseException: A function has failed (then it `is_open`), or its settling.
        """
        try:
            await run
        except BaseException:
            # The thread may go on with its function. It must not start another.
            with self._lock:
                self._is_taken = True
            raise
        finally:
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()

    def run(self) -> None:
        """Run functions, in the thread."""
        lock = self._lock
        while True:
            with lock:
                if self._is_taken or _is_cancelled():
                    return
                call = self._next_call()
                if call is None:
                    return
                self.is_open = True
                self._began = monotonic()
            try:
                # Each function has its own copy of the leg's context variables.
                value = copy_context().run(call)
            finally:
                self._began = None
            with lock:
                if self._is_taken or inspect.isawaitable(value):
                    self.value = value
                    return
                self.is_open = False
                self._settle(value)
            del value, call

    def _next_call(self) -> Callable[[], Any] | None:
        """Return the function to run next; None if the loop has to go on."""
        if self.is_last:
            next_exit, last = self._scheduler.next_exit, self._scheduler.last_value
            return next_exit(last[0]) if next_exit is not None and last is not None else None
        found = self._scheduler.next_plain(may_enter=self._group is None)
        if found is None:
            call = self._scheduler.next_last()
            self.is_last = self.is_last or call is not None
            return call
        self.node, call = found
        return call

    def _settle(self, value: Any) -> None:
        """Settle the function that has run."""
        node, self.node = self.node, None
        if self.is_last:
            if not self.is_over:
                self._scheduler.last_value = (value,)
                self.is_over = True
        elif node is not None:
            self._scheduler.settle_plain(node, value)

    def watch(self, delay: float = SHARED_SECONDS) -> None:
        """Take the work back after some time, if the running function then delays others."""
        self._timer = self._loop.call_later(delay, self._take_if_slow)

    def _take_if_slow(self) -> None:
        """Take the work back if the running function has delayed others for too long."""
        if self._has_ended:
            return
        if not self._lock.acquire(blocking=False):
            # The thread uses the scheduler.
            self.watch(SHARED_SECONDS)
            return
        try:
            # Without a node, the thread has not begun, or is between two.
            if self.is_last or (self.node is not None and not self._scheduler.delays_others(self.node)):
                return
            began = self._began
            left = SHARED_SECONDS if began is None else SHARED_SECONDS - (monotonic() - began)
            self._is_taken = left <= 0
        finally:
            self._lock.release()
        if not self._is_taken:
            self.watch(left)
        elif self._group is not None:
            self.is_beside = True
            self._scheduler.go_on_beside(self._group)


def _is_cancelled() -> bool:
    """Return True if the leg that this thread works for was cancelled."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    return False
