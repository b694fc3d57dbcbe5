"""Protocols for the worker threads that run plain functions. `roundtrip.threads` implements the protocols."""

from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class HeldThread(Protocol):
    """Worker thread that stays reserved for a function."""

    @property
    def is_left(self) -> bool:
        """Return True while the thread runs a function that its leg no longer waits for."""
        ...

    @property
    def is_here(self) -> bool:
        """Return True if the calling code runs in this thread."""
        ...

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        """Run a function in this thread, and finish it even if the leg is cancelled."""
        ...

    def let_go(self) -> None:
        """Release the thread for other legs. Only code in the thread calls this."""
        ...


class PlainRun(Protocol):
    """Functions that a thread runs one after the other. The thread and the loop never use this object concurrently."""

    value: Any
    """The value that the last function returned, if the loop must handle it."""

    def next(self) -> Callable[[], Any] | None:
        """Return the next function to run; None if the loop must take over."""
        ...

    def settle(self, value: Any) -> bool:
        """Accept the value that the last function returned. Return False if the loop must take over."""
        ...

    def delays_others(self) -> bool:
        """Return True if a waiting function could run in another thread."""
        ...

    def continue_beside(self) -> None:
        """Run other functions while this thread is still running a function."""
        ...


class Threads(Protocol):
    """One leg's worker threads. Functions in the same lane run in the same thread."""

    @property
    def share_one(self) -> bool:
        """Return True if all lanes still share one thread, and that thread is idle."""
        ...

    def start(self, lane: Hashable) -> None:
        """Keep this lane in the thread that all lanes share."""
        ...

    async def run(self, call: Callable[[], T], /, *, lane: Hashable = None) -> T:
        """Run a function in its lane's thread, or in any thread if it has no lane."""
        ...

    async def run_body(self, call: Callable[[], T], /) -> T:
        """Run the body in its lane's thread."""
        ...

    async def drive(self, run: PlainRun, *, lane: Hashable) -> None:
        """Run several functions in a lane's thread, until the loop must take over.

        Raises:
            BaseException: A function failed, or its value could not be settled.
        """
        ...

    def hold(self) -> HeldThread:
        """Reserve the current thread. Only code in the thread calls this."""
        ...

    def apart(self) -> "Threads":
        """Return separate threads for another plan on the same leg."""
        ...

    def close(self) -> None:
        """Release the threads for other legs."""
        ...
