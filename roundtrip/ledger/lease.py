"""Leases: one leg has a call, renews its lease, and is stopped when another leg has taken the call over.

A leg holds its lease under a random name. In a worker of `roundtrip serve` or `roundtrip worker`, the name begins with
that of the process, which its supervisor knows. A supervisor that has reaped a worker tells the others its name. From
then on they treat the leases of that process as ended, in every ledger. A process that is only silent keeps its leases
until they end.

Names and deaths of processes are no facts about one server or ledger, so a process keeps them once.
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

# Not `Final`: read at each use, as tests set shorter times.
LEASE_SECONDS = 30.0
"""Time after which a silent process counts as dead. A process renews its leases three times as often."""


def lease_seconds() -> float:
    """Return the length of a lease."""
    return LEASE_SECONDS


class Lease:
    """Lease of one leg on its call. Every write needs it, and fails once another leg has taken the call over.

    Args:
        owner: The tool, for error messages.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.is_taken_over = False
        """True if another leg has taken the call over, or if it was cancelled."""
        self.noted: list[NotedValue] = []
        """The values that an earlier run of the same leg has computed."""
        self._confirmed_at = anyio.current_time()
        """Time at which the ledger last confirmed the lease."""
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the next renewal. Most bodies end before the first one."""
        self._due: set[Callable[[], Awaitable[None]]] = set()
        """What begins soon."""
        self._late: set[asyncio.Task[None]] = set()

    async def hold(self, work: Awaitable[T]) -> T:
        """Await the work of the leg, and cancel it when another leg has taken the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        with anyio.CancelScope() as self._scope:
            if self.is_taken_over:
                self._scope.cancel()
            try:
                end = await work
                if not self.is_taken_over:
                    return end
            except Exception as error:
                if not self.is_taken_over:
                    raise
                raise CallTakenOver(self.owner) from error
        raise CallTakenOver(self.owner)

    def lose(self) -> None:
        """End the leg: another one has the call, or it was cancelled."""
        self.is_taken_over = True
        if self._scope is not None:
            self._scope.cancel()

    async def renew(self) -> None:
        """Extend the lease, or raise CallTakenOver if another leg has taken the call over."""
        raise NotImplementedError

    def renew_in_time(self) -> None:
        """Extend the lease periodically, until it is closed."""
        if self._timer is not None:
            self.begin_soon(self.renew)
        # In an empty context, as the event loop keeps a cancelled timer, with its context, until its time.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LEASE_SECONDS / 3, self.renew_in_time, context=Context())

    async def require_held(self) -> None:
        """Renew the lease if it was last confirmed more than half a lease ago; called before what must not run twice.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        if anyio.current_time() - self._confirmed_at > LEASE_SECONDS / 2:
            await self.renew()

    async def write_held(self, write: Callable[[], Awaitable[bool]]) -> None:
        """Write as the holder of the lease.

        Args:
            write: Writes, and returns False if another leg has taken the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        began = anyio.current_time()
        if self.is_taken_over or not await write():
            self.lose()
            raise CallTakenOver(self.owner)
        self._confirmed_at = began

    def begin_soon(self, work: Callable[[], Awaitable[None]], *, after: float = 0.0) -> None:
        """Begin work in an asyncio task of its own, unless it is about to begin already. It ends with the lease.

        Args:
            work: The work.
            after: The time until it begins, in seconds.
        """
        if work in self._due:
            return
        self._due.add(work)

        async def quietly() -> None:
            await anyio.sleep(after)
            self._due.discard(work)
            with suppress(CallTakenOver):
                await work()

        task = asyncio.get_running_loop().create_task(quietly(), context=Context())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def close(self) -> None:
        """Let the lease end: renew it no more, and end what was begun to be done soon."""
        if self._timer is not None:
            self._timer.cancel()
        # They refer to the lease, and only the garbage collector would free such a cycle.
        self._due.clear()
        for task in self._late:
            task.cancel()


_PROCESS_BYTES: Final = 12
MAX_BURIED: Final = 64
"""Dead processes that are remembered. The leases of earlier ones have ended meanwhile, or end without help."""

_own: tuple[str, int] | None = None
"""The name of this process, and its id: a forked child has neither the name nor its leases."""
_buried: dict[str, None] = {}
_listeners: set[Callable[[], object]] = set()
_changing: Final = threading.Lock()


def name_process() -> str:
    """Give this process a random name, and return it. The caller sees to it that its death is reported."""
    global _own
    _own = SYSTEM.entropy(_PROCESS_BYTES).hex(), os.getpid()
    return _own[0]


def holder_name(entropy: bytes) -> str:
    """Return the name of a holder in this process."""
    if _own is None or _own[1] != os.getpid():
        return entropy.hex()
    return f"{_own[0]}.{entropy.hex()}"


def bury(process: str) -> None:
    """Treat the leases of a process as ended. Any thread may call it, once the process was reaped by its parent."""
    with _changing:
        _buried[process] = None
        while len(_buried) > MAX_BURIED:
            del _buried[next(iter(_buried))]
        listeners = list(_listeners)
    for hear in listeners:
        # The event loop of a listener may have closed.
        with suppress(RuntimeError):
            hear()


def is_buried(holder: str) -> bool:
    """Return True if the process of a holder is certainly dead."""
    return bool(_buried) and "." in holder and holder.partition(".")[0] in _buried


def buried_processes() -> list[str]:
    """Return the names of the processes that are certainly dead."""
    return list(_buried)


def hear_of_deaths(hear: Callable[[], object]) -> Callable[[], None]:
    """Call a function, on any thread, after each death that becomes known. Returns a function that ends it."""
    with _changing:
        _listeners.add(hear)

    def stop() -> None:
        with _changing:
            _listeners.discard(hear)

    return stop
