"""Provide worker threads that a leg can hold: what it runs one after the other runs in the same thread.

anyio chooses another thread for each function, so these threads are not anyio's. In them `anyio.from_thread` works as
in its own: they set what it reads there, for which it has no public name. A test fails if anyio moves it.
"""

import atexit
import os
import queue
import threading
from collections import deque
from contextlib import suppress
from contextvars import Context
from typing import Final, Protocol

import anyio
from anyio._core._eventloop import set_current_async_library, threadlocals  # pyright: ignore[reportUnknownVariableType]
from anyio.lowlevel import EventLoopToken

__all__ = ["Job", "Worker"]

_IDLE_SECONDS: Final = 2.0
"""Time after which a thread without work ends."""


class Job(Protocol):
    """Function for a worker thread, with everything that it finds there."""

    context: Context
    """The context variables that it sees."""
    token: EventLoopToken
    """The loop's token for `anyio.from_thread`."""
    scope: anyio.CancelScope | None
    """The scope whose cancellation `anyio.from_thread` passes on."""

    def __call__(self) -> None:
        """Run the function. It must not raise."""
        ...

    def report_end(self) -> None:
        """Tell the loop that the function has returned. The thread calls it."""
        ...


class Worker:
    """Worker thread. It belongs to one leg at a time."""

    __slots__ = ("__weakref__", "_jobs", "_thread")

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | bool] = queue.SimpleQueue()
        # A daemon, so that an idle one does not delay the interpreter's end; `_wait_for_all` waits for the others.
        self._thread = threading.Thread(target=self._work, name="roundtrip worker thread", daemon=True)

    @staticmethod
    def take() -> "Worker":
        """Return an idle worker thread, or a new one."""
        try:
            # The one that was used last: the others end after a while.
            return _IDLE.pop()
        except IndexError:
            worker = Worker()
            worker._thread.start()
            return worker

    def do(self, job: Job) -> None:
        """Run a job after those that the thread already has."""
        self._jobs.put(job)

    def give_back(self, *, busy: bool) -> None:
        """Let another leg have the thread, as soon as its last job has ended."""
        if busy:
            self._jobs.put(True)
        else:
            _IDLE.append(self)

    def _work(self) -> None:
        _ALL.add(self)
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
                    _IDLE.append(self)
                elif job is False:
                    return
                else:
                    _run(job)
                    # It refers to the whole call.
                    del job
        finally:
            _ALL.discard(self)

    def end(self) -> None:
        """Run the jobs that the thread has, and end it."""
        self._jobs.put(False)
        self._thread.join()


def _leave_library() -> None:
    set_current_async_library(None)


def _run(job: Job) -> None:
    threadlocals.current_token = job.token
    threadlocals.current_cancel_scope = job.scope
    try:
        # As anyio does: no event loop runs in a thread.
        job.context.run(_leave_library)
        job.context.run(job)
    finally:
        del threadlocals.current_token, threadlocals.current_cancel_scope
    # The loop may be gone.
    with suppress(RuntimeError):
        job.report_end()


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
