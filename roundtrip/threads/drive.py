"""Run plain functions in one thread, one after the other, without the event loop in between.

The thread runs each function and settles it. While a function of the author runs, the loop may take the work back: it
does so if the function delays others for longer than a millisecond. The thread then leaves the function's value to the
loop, and starts no other.
"""

import asyncio
import threading
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from time import monotonic

import anyio.from_thread

from roundtrip.resolvers.threads import SHARED_SECONDS, PlainRun


@dataclass(slots=True, eq=False, repr=False)
class Drive:
    """One trip of a thread through functions."""

    _run: PlainRun
    # Held while the thread or the loop uses the functions.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float | None = None
    _timer: asyncio.TimerHandle | None = None
    # True once the loop has taken the work back.
    _is_taken: bool = False

    # In the thread.

    def run(self) -> None:
        """Run functions until the loop has to go on."""
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
        # An empty context, as the loop keeps a timer until its time.
        self._timer = asyncio.get_running_loop().call_later(delay, self._take_if_slow, context=Context())

    def end(self) -> None:
        """Keep the thread from starting another function, if it still runs one."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_taken = True

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
        if self._is_taken:
            self._run.go_on_beside()
        else:
            self.watch(left)


def _is_cancelled() -> bool:
    """Return True if the leg that this thread works for was cancelled."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    return False
