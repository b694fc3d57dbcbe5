"""Run plain functions in one thread, one after the other, without the event loop in between.

A `Drive` hands the work on a plan to a thread, which runs each function and settles it. While a function of the author
runs, the loop may take the work back: it does so if the function delays others for longer than a millisecond. The
thread then leaves the function's value to the loop, and starts no other.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from contextvars import copy_context
from time import monotonic

import anyio.from_thread

from roundtrip.resolvers.threads import SHARED_SECONDS, Driven

__all__ = ["Drive"]


class Drive:
    """Run of plain functions in one thread.

    Args:
        work: The functions.
    """

    __slots__ = ("_began", "_is_over", "_is_taken", "_lock", "_timer", "_work")

    def __init__(self, work: Driven) -> None:
        self._work = work
        # Held while the thread or the loop uses `work`.
        self._lock = threading.Lock()
        self._began: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        # True once the loop has taken the work back.
        self._is_taken = False

    async def around(self, run: Awaitable[None]) -> None:
        """Await `run` in a thread, until the loop has to go on.

        Raises:
            BaseException: A function has failed (then the work `is_open`), or its settling.
        """
        try:
            await run
        except BaseException:
            # The thread may go on with its function. It must not start another.
            with self._lock:
                self._is_taken = True
            raise
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()

    def run(self) -> None:
        """Run functions, in the thread."""
        work, lock = self._work, self._lock
        while True:
            with lock:
                if self._is_taken or _is_cancelled():
                    return
                call = work.next_call()
                if call is None:
                    return
                work.is_open = True
                self._began = monotonic()
            try:
                # Each function has its own copy of the leg's context variables.
                value = copy_context().run(call)
            finally:
                self._began = None
            with lock:
                if self._is_taken or inspect.isawaitable(value):
                    work.value = value
                    return
                work.is_open = False
                work.settle_value(value)
            del value, call

    def watch(self, delay: float = SHARED_SECONDS) -> None:
        """Take the work back after some time, if the running function then delays others."""
        self._timer = asyncio.get_running_loop().call_later(delay, self._take_if_slow)

    def _take_if_slow(self) -> None:
        """Take the work back if the running function has delayed others for too long."""
        if self._is_over or not self._work_is_free():
            return
        try:
            if not self._work.delays_others():
                return
            began = self._began
            left = SHARED_SECONDS if began is None else SHARED_SECONDS - (monotonic() - began)
            self._is_taken = left <= 0
        finally:
            self._lock.release()
        if self._is_taken:
            self._work.go_on()
        else:
            self.watch(left)

    def _work_is_free(self) -> bool:
        """Return True, and hold the lock, if the thread does not use the work; else look again later."""
        if self._lock.acquire(blocking=False):
            return True
        self.watch(SHARED_SECONDS)
        return False


def _is_cancelled() -> bool:
    """Return True if the leg that this thread works for was cancelled."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    return False
