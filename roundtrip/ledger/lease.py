"""Leases: a leg renews the lease on its call, and is cancelled if another leg takes over the call.

A leg holds its lease under a random name. In a worker of `roundtrip serve` or `roundtrip worker`, this name begins with
the process name, which the supervisor knows. When the supervisor has reaped a dead worker, it sends the process name to
the other workers. The other workers then treat the dead process's leases as ended, in every ledger. A process that is
silent but not known to be dead keeps its leases until they expire.

Process names and deaths concern all servers and ledgers, so this module keeps them as global state.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from roundtrip.errors import CallTakenOver
from roundtrip.system import SYSTEM

if TYPE_CHECKING:
    from roundtrip.engine.computed import NotedValue

T = TypeVar("T")

# Not `Final`: tests set shorter leases, so the value is read at each use.
LEASE_SECONDS = 30.0
"""Seconds until a silent process counts as dead. A process renews its leases three times within this time."""


def lease_seconds() -> float:
    """Return the lease duration."""
    return LEASE_SECONDS


class Lease:
    """One leg's lease on its call. Every write needs the lease, and fails once another leg has taken over the call.

    Args:
        owner: The tool's name in error messages.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.is_taken_over = False
        """True if another leg has taken over the call, or if the call was cancelled."""
        self.noted: list[NotedValue] = []
        """Values that were computed by an earlier run of the same leg."""
        self._confirmed_at = anyio.current_time()
        """The time at which the ledger last confirmed the lease."""
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Timer for the next renewal. Most bodies end before the first renewal."""
        self._scheduled: set[Callable[[], Awaitable[None]]] = set()
        """Scheduled work that has not begun yet."""
        self._scheduled_tasks: set[asyncio.Task[None]] = set()

    async def hold(self, work: Awaitable[T]) -> T:
        """Await the leg's work, and cancel it if another leg takes over the call.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        with anyio.CancelScope() as self._scope:
            if self.is_taken_over:
                self._scope.cancel()
            try:
                result = await work
                if not self.is_taken_over:
                    return result
            except Exception as error:
                if not self.is_taken_over:
                    raise
                raise CallTakenOver(self.owner) from error
        raise CallTakenOver(self.owner)

    def lose(self) -> None:
        """Cancel the leg, because another leg has taken over the call or the call was cancelled."""
        self.is_taken_over = True
        if self._scope is not None:
            self._scope.cancel()

    async def renew(self) -> None:
        """Extend the lease. Raise `CallTakenOver` if another leg has taken over the call."""
        raise NotImplementedError

    def renew_in_time(self) -> None:
        """Renew the lease periodically until `close` is called."""
        if self._timer is not None:
            self.begin_soon(self.renew)
        # Use an empty context: the event loop keeps a cancelled timer and its context until the timer would have fired.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LEASE_SECONDS / 3, self.renew_in_time, context=Context())

    async def require_held(self) -> None:
        """Renew the lease if its last confirmation is older than half the lease duration.

        Call this before any work that must not run twice.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        if anyio.current_time() - self._confirmed_at > LEASE_SECONDS / 2:
            await self.renew()

    async def write_held(self, write: Callable[[], Awaitable[bool]]) -> None:
        """Perform a write that only the lease holder may perform.

        Args:
            write: Performs the write, and returns False if another leg has taken over the call.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        started_at = anyio.current_time()
        if self.is_taken_over or not await write():
            self.lose()
            raise CallTakenOver(self.owner)
        self._confirmed_at = started_at

    def begin_soon(self, work: Callable[[], Awaitable[None]], *, after: float = 0.0) -> None:
        """Schedule work in a separate asyncio task, unless the same work is already scheduled. When the lease is
        closed, the work is cancelled.

        Args:
            work: The function that does the work.
            after: Delay in seconds.
        """
        if work in self._scheduled:
            return
        self._scheduled.add(work)

        async def run_scheduled() -> None:
            await anyio.sleep(after)
            self._scheduled.discard(work)
            with suppress(CallTakenOver):
                await work()

        task = asyncio.get_running_loop().create_task(run_scheduled(), context=Context())
        self._scheduled_tasks.add(task)
        task.add_done_callback(self._scheduled_tasks.discard)

    def close(self) -> None:
        """Stop renewing the lease, and cancel scheduled work."""
        if self._timer is not None:
            self._timer.cancel()
        # The scheduled work and this lease refer to each other. Without this line, only the garbage collector could
        # free them.
        self._scheduled.clear()
        for task in self._scheduled_tasks:
            task.cancel()


_PROCESS_BYTES: Final = 12
MAX_BURIED: Final = 64
"""Maximum number of dead processes to remember. The leases of forgotten processes expire like all other leases."""

_own: tuple[str, int] | None = None
"""This process's name and process id. A forked child inherits neither the name nor the leases."""
_buried: dict[str, None] = {}
_listeners: set[Callable[[], object]] = set()
_registry_lock: Final = threading.Lock()


def name_process() -> str:
    """Give this process a random name and return it. The caller must ensure that the process's death is reported."""
    global _own
    _own = SYSTEM.entropy(_PROCESS_BYTES).hex(), os.getpid()
    return _own[0]


def holder_name(entropy: bytes) -> str:
    """Return a holder name for a leg in this process."""
    if _own is None or _own[1] != os.getpid():
        return entropy.hex()
    return f"{_own[0]}.{entropy.hex()}"


def bury(process: str) -> None:
    """Treat a process's leases as ended. Call this only after the parent process has reaped the dead process.
    Thread-safe.
    """
    with _registry_lock:
        _buried[process] = None
        while len(_buried) > MAX_BURIED:
            del _buried[next(iter(_buried))]
        listeners = list(_listeners)
    for listener in listeners:
        # The listener's event loop may be closed.
        with suppress(RuntimeError):
            listener()


def is_buried(holder: str) -> bool:
    """Return True if the holder's process is known to be dead."""
    return bool(_buried) and "." in holder and holder.partition(".")[0] in _buried


def buried_processes() -> list[str]:
    """Return the names of processes that are known to be dead."""
    return list(_buried)


def hear_of_deaths(listener: Callable[[], object]) -> Callable[[], None]:
    """Call the listener after each reported process death, possibly in another thread.

    Returns a function that removes the listener.
    """
    with _registry_lock:
        _listeners.add(listener)

    def stop() -> None:
        with _registry_lock:
            _listeners.discard(listener)

    return stop
