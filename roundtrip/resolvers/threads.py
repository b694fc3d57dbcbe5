"""Describe the worker threads in which a scheduler runs plain functions."""

from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar

__all__ = ["SHARED_SECONDS", "AnyThreads", "Driven", "HeldThread", "Threads"]

T = TypeVar("T")


SHARED_SECONDS: Final = 0.001
"""Time for which a plain function may run before those that wait for its thread move to others."""


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

    async def drive(self, work: "Driven", *, lane: Hashable, shares: bool) -> None:
        """Run functions in the thread of a lane, until the loop has to go on.

        Args:
            work: The functions.
            lane: The lane of the first.
            shares: True if functions that wait may move to other threads.
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


class AnyThreads:
    """Worker threads without lanes, for schedulers outside of a server."""

    __slots__ = ()

    @property
    def share_one(self) -> bool:
        """Return False: no function has a thread of its own."""
        return False

    def start(self, lane: Hashable) -> None:
        """Ignore the lane."""

    async def run(self, call: Callable[[], T], /, *, lane: Hashable = None) -> T:
        """Run a function in any thread."""
        from anyio import to_thread

        del lane
        return await to_thread.run_sync(call)

    async def drive(self, work: "Driven", *, lane: Hashable, shares: bool) -> None:
        """Run nothing: these threads share none."""
        raise NotImplementedError

    def hold(self) -> HeldThread:
        """Keep no thread."""
        return _AnyThread()

    def apart(self) -> "AnyThreads":
        """Return the same threads."""
        return self

    def close(self) -> None:
        """Do nothing."""


class _AnyThread:
    """Any thread, for a function that must run."""

    __slots__ = ()

    @property
    def is_left(self) -> bool:
        return False

    @property
    def is_here(self) -> bool:
        return False

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        from anyio import CancelScope, to_thread

        with CancelScope(shield=True):
            return await to_thread.run_sync(context.run, call)

    def let_go(self) -> None:
        pass


class Driven(Protocol):
    """Work that a drive does. It is called in the thread or on the loop, and never by both at once."""

    is_open: bool
    """True if a function has begun, and is not settled."""
    value: Any
    """Its value, if that is left to the loop."""

    def next_call(self) -> Callable[[], Any] | None:
        """Return the function to run next; None if the loop has to go on."""
        ...

    def settle_value(self, value: Any) -> None:
        """Settle the function that has run."""
        ...

    def delays_others(self) -> bool:
        """Return True if functions wait that may run in other threads."""
        ...

    def go_on(self) -> None:
        """Run the other functions, on the loop, while the thread still runs one."""
        ...
