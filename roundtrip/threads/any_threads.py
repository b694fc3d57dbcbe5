"""Plain functions in arbitrary threads, for resolvers outside a server. Unlike `leg_threads`, this works on trio."""

from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any, TypeVar

from anyio import CancelScope, to_thread

from roundtrip.resolvers.threads import PlainRun

T = TypeVar("T")


class AnyThreads:
    """Worker threads without lanes."""

    share_one = False

    def start(self, lane: Hashable) -> None:
        """Ignore the lane."""

    async def run(self, call: Callable[[], T], /, *, lane: Hashable = None) -> T:
        """Run a function in an arbitrary thread."""
        return await to_thread.run_sync(call)

    async def run_body(self, call: Callable[[], T], /) -> T:
        """Run the body in an arbitrary thread."""
        return await self.run(call)

    async def drive(self, run: PlainRun, *, lane: Hashable) -> None:
        """Raise an error, because functions in arbitrary threads never share a thread. Nothing calls this method."""
        raise NotImplementedError

    def hold(self) -> "_AnyThread":
        """Return a placeholder, because no thread is kept."""
        return _AnyThread()

    def apart(self) -> "AnyThreads":
        """Return the same threads."""
        return self

    def close(self) -> None:
        """Do nothing."""


class _AnyThread:
    """Placeholder for a kept thread. It runs each function in an arbitrary thread."""

    is_left = False
    is_here = False

    async def run(self, call: Callable[[], Any], context: Context) -> Any:
        with CancelScope(shield=True):
            return await to_thread.run_sync(context.run, call)

    def let_go(self) -> None:
        pass
