"""Run plain functions in worker threads, with a share of threads for each tool.

A thread cannot be stopped. If its call times out, it is left behind, and keeps its slot until its function returns.
Once such threads hold every slot, calls that need one fail: they would queue behind threads that may never end.

In a fair pool, each slot has an owner, such as a tool with its resolvers and steps. An owner gets another slot only
while it has less than twice as many as are free, so it gets at most 40 of 60. A quarter of all slots is reserved for
owners that have none.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar, current_token

from roundtrip.errors import ThreadsExhausted

__all__ = ["SHARED", "LeavingThreads", "Pool", "RunInPool", "run_in_thread", "unless_left"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_SHARE: Final = 2
"""The most slots of one owner, as a multiple of the free slots."""
_RESERVED: Final = 0.25
"""The part of all slots that is reserved for owners without a slot."""


class Pool:
    """Worker threads on each event loop.

    Args:
        size: The number of threads.
        fair: True to keep threads for other owners.
    """

    __slots__ = ("__weakref__", "_fair", "_size")

    def __init__(self, size: int, *, fair: bool = False) -> None:
        self._size = size
        self._fair = fair

    def slots(self) -> "_Slots":
        """Return its slots on the running event loop."""
        try:
            return _POOLS.get()[self]
        except KeyError:
            pools = _POOLS.get()
        except LookupError:
            pools = WeakKeyDictionary[Pool, _Slots]()
            _POOLS.set(pools)
        slots = pools[self] = _Slots(anyio.CapacityLimiter(self._size), fair=self._fair)
        return slots


SHARED: Final = Pool(60, fair=True)
"""For functions that only compute. Other code, which uses anyio's own threads, need not wait for them."""


class RunInPool(Protocol):
    """Runs a function in a worker thread of a pool."""

    async def __call__(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """Return the function's result."""
        ...


async def run_in_thread(call: Callable[[], T], /, *, pool: Pool = SHARED, owner: Hashable = None) -> T:
    """Run a function in a worker thread for an owner, and wait until it ends.

    Raises:
        ThreadsExhausted: All threads that the owner may have were left behind.
    """
    slots = pool.slots()
    holder = object()
    await slots.take(holder, owner)
    try:
        return await anyio.to_thread.run_sync(call, limiter=slots.uncounted)
    finally:
        slots.give_back(holder, owner)


class LeavingThreads:
    """Runner of the plain functions of one leg, which leaves unfinished ones behind when the leg is cancelled."""

    __slots__ = ("_owner", "_running", "left")

    def __init__(self, owner: Hashable = None) -> None:
        self._owner = owner
        self.left = 0
        """Threads that were left behind."""
        self._running: list[asyncio.Event] = []

    async def run(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """Run a function in a worker thread, and leave it behind on cancellation.

        Raises:
            ThreadsExhausted: All threads that the owner may have were left behind.
        """
        slots = pool.slots()
        work = _Work(call, slots, self._owner)
        await slots.take(work, self._owner)
        try:
            await anyio.to_thread.run_sync(work, limiter=slots.uncounted, abandon_on_cancel=True)
        finally:
            if work.is_left_running():
                self.left += 1
                slots.leave(self._owner)
                self._running.append(work.gone)
            else:
                slots.give_back(work, self._owner)
        return work.result()

    def outlive(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` when all threads that were left behind have ended; return False if there are none.

        It runs in its own asyncio task, unless the loop ends before the threads.
        """
        running = [gone for gone in self._running if not gone.is_set()]
        leg = asyncio.current_task() if running else None
        if leg is None:
            return False

        async def when_ended() -> None:
            for gone in running:
                await gone.wait()
            await work()

        # A context variable can be reset only in the leg's own context, which Python has since 3.12.
        own = getattr(leg, "get_context", lambda: None)()
        task = asyncio.create_task(when_ended(), name="roundtrip: leave what a thread has used", context=own)
        _OUTLIVING.add(task)
        task.add_done_callback(_OUTLIVING.discard)
        return True


_OUTLIVING: Final[set[asyncio.Task[None]]] = set()
"""Strong references, as the loop keeps asyncio tasks only weakly."""


class _SlotWaiter:
    """Call that waits for a slot."""

    __slots__ = ("event", "granted", "holder")

    def __init__(self, holder: object) -> None:
        self.holder = holder
        self.event = anyio.Event()
        self.granted = False


class _Slots:
    """Slots of one pool on one event loop. Everything but a thread's own end happens on that loop."""

    __slots__ = ("_fair", "_held", "_left", "_waiting", "limiter", "uncounted")

    def __init__(self, limiter: anyio.CapacityLimiter, *, fair: bool) -> None:
        self.limiter = limiter
        self._fair = fair
        self._held: dict[Hashable, int] = {}
        self._left: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[_SlotWaiter]] = {}
        # A slot is returned when its thread ends; anyio would return it with the call.
        self.uncounted = anyio.CapacityLimiter(math.inf)

    def _suffices(self, free: float, held: int) -> bool:
        """Return True if an owner that has `held` slots may get one of the `free` slots."""
        if not held or not self._fair:
            return free > 0
        return held < _SHARE * free and free > int(self.limiter.total_tokens * _RESERVED)

    def _may_take(self, owner: Hashable) -> bool:
        free = self.limiter.total_tokens - self.limiter.borrowed_tokens
        return self._suffices(free, self._held.get(owner, 0))

    def _is_lost(self, owner: Hashable) -> bool:
        """Return True if the owner cannot get a slot, even when only the threads that were left behind have one."""
        free = self.limiter.total_tokens - sum(self._left.values())
        return not self._suffices(free, self._left.get(owner, 0))

    async def take(self, holder: object, owner: Hashable) -> None:
        # Earlier calls of this owner come first; those of other owners could not have the slot.
        if owner not in self._waiting and self._may_take(owner):
            self._grant(holder, owner)
            return
        if not self._is_lost(owner):
            waiter = _SlotWaiter(holder)
            queue = self._waiting.setdefault(owner, deque())
            queue.append(waiter)
            try:
                await waiter.event.wait()
            except BaseException:
                if waiter.granted:
                    self.give_back(holder, owner)
                elif waiter in queue:
                    queue.remove(waiter)
                    if not queue and self._waiting.get(owner) is queue:
                        del self._waiting[owner]
                raise
            if waiter.granted:
                return
        raise ThreadsExhausted(self._left.get(owner) or sum(self._left.values()))

    def _grant(self, holder: object, owner: Hashable) -> None:
        self.limiter.acquire_on_behalf_of_nowait(holder)
        self._held[owner] = self._held.get(owner, 0) + 1

    def give_back(self, holder: object, owner: Hashable) -> None:
        self.limiter.release_on_behalf_of(holder)
        _decrease(self._held, owner)
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        """Grant free slots to waiting calls, one owner after another."""
        admitted = True
        while admitted:
            admitted = False
            for owner, queue in [*self._waiting.items()]:
                if self._may_take(owner):
                    waiter = queue.popleft()
                    if not queue:
                        del self._waiting[owner]
                    self._grant(waiter.holder, owner)
                    waiter.granted = admitted = True
                    waiter.event.set()

    def leave(self, owner: Hashable) -> None:
        """Record that a thread still runs after its call has ended."""
        self._left[owner] = self._left.get(owner, 0) + 1
        for waiting, queue in [*self._waiting.items()]:
            if self._is_lost(waiting):
                del self._waiting[waiting]
                for waiter in queue:
                    waiter.event.set()

    def end(self, work: "_Work", owner: Hashable) -> None:
        """Record that a thread that was left behind has ended."""
        _decrease(self._left, owner)
        self.give_back(work, owner)
        work.gone.set()


def _decrease(counts: dict[Hashable, int], owner: Hashable) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]


_POOLS: Final[RunVar[WeakKeyDictionary[Pool, _Slots]]] = RunVar("roundtrip_pools")


class _Stage(Enum):
    NEW = "new"
    DROPPED = "dropped"
    RUNNING = "running"
    LEFT = "left"
    ENDED = "ended"


class _Work:
    """Function in a thread that may be left behind. It holds the slot."""

    __slots__ = ("_call", "_error", "_lock", "_loop", "_owner", "_scopes", "_slots", "_stage", "_value", "gone")

    _value: Any

    def __init__(self, call: Callable[[], Any], slots: _Slots, owner: Hashable) -> None:
        self._call = call
        self._owner = owner
        self._slots = slots
        self._loop = current_token()
        self._stage = _Stage.NEW
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._scopes: set[anyio.CancelScope] = set()
        self.gone = asyncio.Event()
        """Set on the loop when a thread that was left behind has ended."""

    def __call__(self) -> None:
        """Run the function, in the thread."""
        with self._lock:
            if self._stage is _Stage.DROPPED:
                return
            self._stage = _Stage.RUNNING
        # The thread has its own context.
        _WORK.set(self)
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        if self._end() is _Stage.LEFT:
            error, self._error = self._error, None
            if error is not None:
                logger.info("a function raised an exception in a thread whose call had ended", exc_info=error)
            # In a daemon thread: on a loop that has stopped for good it would wait forever.
            with suppress(RuntimeError):
                threading.Thread(target=self._tell, name="roundtrip thread end", daemon=True).start()

    def _end(self) -> _Stage:
        """Set the last stage, and return the one before."""
        with self._lock:
            before, self._stage = self._stage, _Stage.ENDED
            return before

    def _tell(self) -> None:
        from anyio import from_thread  # asyncio's side of anyio has imported it by now

        # The loop, and its slots, may be gone.
        with suppress(RuntimeError):
            from_thread.run_sync(self._slots.end, self, self._owner, token=self._loop)

    def is_left_running(self) -> bool:
        """Leave the thread behind; return True if it still runs."""
        with self._lock:
            if self._stage is _Stage.RUNNING:
                self._stage = _Stage.LEFT
                for scope in self._scopes:
                    scope.cancel()
                return True
            if self._stage is _Stage.NEW:
                self._stage = _Stage.DROPPED
            return False

    @contextmanager
    def unless_left(self) -> Generator[None]:
        """Surround work that the thread hands to its event loop."""
        with anyio.CancelScope() as scope:
            if self._stage is _Stage.LEFT:
                scope.cancel()
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def result(self) -> Any:
        """Return the function's result, or raise its exception."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # Its traceback holds this frame.
            del error


_WORK: Final[ContextVar[_Work | None]] = ContextVar("roundtrip_work", default=None)
"""The function that runs in this thread. Code deep in the function reads it; see `unless_left`."""


@contextmanager
def unless_left() -> Generator[None]:
    """Surround work that a thread hands to its event loop: it is cancelled when the thread is left behind.

    anyio runs it in a cancel scope of the leg. The leg leaves that scope, which would then never cancel the work.
    """
    work = _WORK.get()
    if work is None:
        yield
        return
    with work.unless_left():
        yield
