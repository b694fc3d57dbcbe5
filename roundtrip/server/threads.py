"""Worker threads for plain functions: how many there are, and which of them nobody waits for any more.

A thread cannot be stopped. One whose call has timed out is left behind, and keeps its slot until its function returns.
Once such threads hold every slot, calls that need one are refused: they would queue behind what may never end.

Slots of a fair pool are taken on behalf of an owner, such as a tool with its resolvers and steps. An owner gets another
one only while it has less than twice as many as are free, 40 of 60 at most, and while more than a quarter is free: the
last 15 are for owners that have none.
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
import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import RunVar, current_token

from roundtrip.errors import ThreadsExhausted

__all__ = ["SHARED", "LeavingThreads", "Pool", "RunInPool", "run_in_thread", "unless_left"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_SHARE: Final = 2
"""How many times the slots that are free one owner may hold."""
_RESERVED: Final = 0.25
"""The part of all slots that is for owners which hold none."""


class Pool:
    """So many worker threads on each event loop.

    Args:
        size: Threads.
        fair: Whether no owner may take what others need.
    """

    __slots__ = ("__weakref__", "_fair", "_size")

    def __init__(self, size: int, *, fair: bool = False) -> None:
        self._size = size
        self._fair = fair

    def slots(self) -> "_Slots":
        """Its slots on the running event loop."""
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
"""For functions that only compute. Not those of anyio itself, for which others would have to queue."""


class RunInPool(Protocol):
    """Runs a function in a worker thread of a pool."""

    async def __call__(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """What the function returns."""
        ...


async def run_in_thread(call: Callable[[], T], /, *, pool: Pool = SHARED, owner: Hashable = None) -> T:
    """Run a function in a worker thread on behalf of an owner, and stay with it to its end.

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
    """Runs the plain functions of one leg, and leaves those behind that are not done when the leg is cancelled."""

    __slots__ = ("_owner", "_running", "left")

    def __init__(self, owner: Hashable = None) -> None:
        self._owner = owner
        self.left = 0
        """How many were left behind."""
        self._running: list[asyncio.Event] = []

    async def run(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """Run a function in a worker thread, for as long as it is waited for.

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
        """Have something done when all threads that were left behind have ended; False where none was.

        It runs in a task of its own. A loop that ends before the threads do does without it.
        """
        running = [gone for gone in self._running if not gone.is_set()]
        leg = asyncio.current_task() if running else None
        if leg is None:
            return False

        async def when_ended() -> None:
            for gone in running:
                await gone.wait()
            await work()

        # In the leg's own context where Python tells it (3.12): a context variable is put back in no other.
        own = getattr(leg, "get_context", lambda: None)()
        task = asyncio.create_task(when_ended(), name="roundtrip: leave what a thread has used", context=own)
        _OUTLIVING.add(task)
        task.add_done_callback(_OUTLIVING.discard)
        return True


_OUTLIVING: Final[set[asyncio.Task[None]]] = set()
"""Kept here, as the loop itself keeps tasks only weakly."""


class _SlotWaiter:
    """A call that waits for a slot."""

    __slots__ = ("event", "granted", "holder")

    def __init__(self, holder: object) -> None:
        self.holder = holder
        self.event = anyio.Event()
        self.granted = False


class _Slots:
    """The slots of one pool on one event loop. All but a thread's own end happens on that loop."""

    __slots__ = ("_fair", "_held", "_left", "_waiting", "limiter", "uncounted")

    def __init__(self, limiter: anyio.CapacityLimiter, *, fair: bool) -> None:
        self.limiter = limiter
        self._fair = fair
        self._held: dict[Hashable, int] = {}
        self._left: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[_SlotWaiter]] = {}
        # A slot is taken here, and given back when its thread ends; anyio would give it back with the call.
        self.uncounted = anyio.CapacityLimiter(math.inf)

    def _suffices(self, free: float, held: int) -> bool:
        """Return True if an owner that holds some slots may have another one of those that are free."""
        if not held or not self._fair:
            return free > 0
        return held < _SHARE * free and free > int(self.limiter.total_tokens * _RESERVED)

    def _may_take(self, owner: Hashable) -> bool:
        free = self.limiter.total_tokens - self.limiter.borrowed_tokens
        return self._suffices(free, self._held.get(owner, 0))

    def _is_lost(self, owner: Hashable) -> bool:
        """Return True if the owner could take none even if all threads ended that were not left behind."""
        free = self.limiter.total_tokens - sum(self._left.values())
        return not self._suffices(free, self._left.get(owner, 0))

    async def take(self, holder: object, owner: Hashable) -> None:
        # Who waits for this owner comes first; those of other owners could not have it.
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
        """Grant what is free to those that wait, one owner after another."""
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
        """Note that a thread goes on although its call is over."""
        self._left[owner] = self._left.get(owner, 0) + 1
        for waiting, queue in [*self._waiting.items()]:
            if self._is_lost(waiting):
                del self._waiting[waiting]
                for waiter in queue:
                    waiter.event.set()

    def end(self, work: "_Work", owner: Hashable) -> None:
        """Note that a thread that was left behind has ended."""
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
    """A function on its way through a thread that may be left behind. It holds the slot."""

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
        """Run it; in the thread."""
        with self._lock:
            if self._stage is _Stage.DROPPED:
                return
            self._stage = _Stage.RUNNING
        # In a context of the thread's own.
        _WORK.set(self)
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        if self._end() is _Stage.LEFT:
            error, self._error = self._error, None
            if error is not None:
                logger.info("a thread that went on after its call had ended failed", exc_info=error)
            # In a thread that no process waits for: on a loop that has stopped for good it would wait for ever.
            with suppress(RuntimeError):
                threading.Thread(target=self._tell, name="roundtrip thread end", daemon=True).start()

    def _end(self) -> _Stage:
        """The stage it ended in."""
        with self._lock:
            before, self._stage = self._stage, _Stage.ENDED
            return before

    def _tell(self) -> None:
        # A loop that is closed has no slots any more.
        with suppress(RuntimeError):
            anyio.from_thread.run_sync(self._slots.end, self, self._owner, token=self._loop)

    def is_left_running(self) -> bool:
        """Whether the thread still runs, now that nobody waits for it any longer."""
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
        """Surround what the thread has its event loop do."""
        with anyio.CancelScope() as scope:
            if self._stage is _Stage.LEFT:
                scope.cancel()
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def result(self) -> Any:
        """What the function returned, or raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # Its traceback holds this frame.
            del error


_WORK: Final[ContextVar[_Work | None]] = ContextVar("roundtrip_work", default=None)
"""What runs in this thread."""


@contextmanager
def unless_left() -> Generator[None]:
    """Surround what a thread has its event loop do: it is cancelled when the thread is left behind.

    anyio takes it into a scope that the leg then leaves, and would have it wait for its cancellation for ever.
    """
    work = _WORK.get()
    if work is None:
        yield
        return
    with work.unless_left():
        yield
