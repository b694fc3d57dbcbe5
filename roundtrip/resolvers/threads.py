"""Protocols for the worker threads that run plain functions; `roundtrip.threads` implements them."""

from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class HeldThread(Protocol):
    """Worker thread that is kept for a function."""

    @property
    def is_left(self) -> bool:
        """Return True while it runs a function that its leg has left behind."""
        ...

    @property
    def is_here(self) -> bool:
        """Return True in the thread."""
        ...

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        """Run the function, even if the leg is cancelled."""
        ...

    def let_go(self) -> None:
        """Release the thread for other legs. Code in the thread calls this."""
        ...


class PlainRun(Protocol):
    """Functions that a thread runs one after the other. The thread or the loop uses it, and never both at once."""

    value: Any
    """The value of the function that has run, if the loop must handle it."""

    def next(self) -> Callable[[], Any] | None:
        """Return the next function to run; None if the loop must continue."""
        ...

    def settle(self, value: Any) -> bool:
        """Take the value of the function that has run. Return False if the loop must continue."""
        ...

    def delays_others(self) -> bool:
        """Return True if a waiting function could run in another thread."""
        ...

    def continue_beside(self) -> None:
        """Run other functions while the thread still runs one."""
        ...


class Threads(Protocol):
    """One leg's worker threads. Functions in one lane run in one thread."""

    @property
    def share_one(self) -> bool:
        """Return True if all lanes still share one thread, which is free."""
        ...

    def start(self, lane: Hashable) -> None:
        """Keep a lane in the thread that all share."""
        ...

    async def run(self, call: Callable[[], T], /, *, lane: Hashable = None) -> T:
        """Run a function in its lane's thread; without a lane, in any thread."""
        ...

    async def run_body(self, call: Callable[[], T], /) -> T:
        """Run the body in its lane's thread."""
        ...

    async def drive(self, run: PlainRun, *, lane: Hashable) -> None:
        """Run several functions in a lane's thread, until the loop must continue.

        Raises:
            BaseException: A function failed, or could not be settled.
        """
        ...

    def hold(self) -> HeldThread:
        """Keep the current thread. Code in the thread calls this."""
        ...

    def apart(self) -> "Threads":
        """Return threads for another plan in the same leg."""
        ...

    def close(self) -> None:
        """Release the threads for other legs."""
        ...
