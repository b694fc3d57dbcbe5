"""Protocols of the worker threads that run plain functions; `roundtrip.threads` implements them."""

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
        """Let other legs have the thread. Code in it calls this."""
        ...


class PlainRun(Protocol):
    """Functions that a thread runs one after the other. The thread or the loop uses it, and never both at once."""

    value: Any
    """The value of the function that has run, if that is left to the loop."""

    def next(self) -> Callable[[], Any] | None:
        """Return the next function to run; None if the loop must continue."""
        ...

    def settle(self, value: Any) -> bool:
        """Take the value of the function that has run. Return False if the loop must continue."""
        ...

    def delays_others(self) -> bool:
        """Return True if a function waits that could run in another thread."""
        ...

    def continue_beside(self) -> None:
        """Run other functions while the thread still runs one."""
        ...


class Threads(Protocol):
    """Worker threads of one leg. Functions of one lane run in one thread."""

    @property
    def share_one(self) -> bool:
        """Return True if all lanes still share one thread, which is free."""
        ...

    def start(self, lane: Hashable) -> None:
        """Keep a lane in the thread that all share."""
        ...

    async def run(self, call: Callable[[], T], /, *, lane: Hashable = None) -> T:
        """Run a function in the thread of its lane; without a lane, in any."""
        ...

    async def run_body(self, call: Callable[[], T], /) -> T:
        """Run the body in the thread of its lane."""
        ...

    async def drive(self, run: PlainRun, *, lane: Hashable) -> None:
        """Run several functions in the thread of a lane, until the loop must continue.

        Raises:
            BaseException: A function has failed, or its settling.
        """
        ...

    def hold(self) -> HeldThread:
        """Keep the current thread. Code in it calls this."""
        ...

    def apart(self) -> "Threads":
        """Return threads for another plan of the same leg."""
        ...

    def close(self) -> None:
        """Let other legs have the threads."""
        ...
