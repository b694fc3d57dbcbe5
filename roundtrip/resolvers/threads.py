"""Describe the worker threads in which a scheduler runs plain functions."""

from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar

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

    async def drive(self, run: Callable[[], None], *, lane: Hashable, begun: Callable[[], None] | None) -> None:
        """Run several functions of the plan in the thread of a lane; see `Drive`.

        Args:
            run: Runs them.
            lane: The lane of the first.
            begun: Called if the loop goes on meanwhile.
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

        return await to_thread.run_sync(call)

    async def drive(self, run: Callable[[], None], *, lane: Hashable, begun: Callable[[], None] | None) -> None:
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
