"""Worker threads for plain functions: how many there are, and which of them nobody waits for any more.

A thread cannot be stopped. One whose call has timed out is left behind, and keeps its slot until its function returns.
Once such threads hold every slot, calls that need one are refused: they would queue behind what may never end.
"""

import logging
import math
import threading
from collections.abc import Callable, Generator
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


class Pool:
    """So many worker threads on each event loop."""

    __slots__ = ("__weakref__", "_size")

    def __init__(self, size: int) -> None:
        self._size = size

    def slots(self) -> "_Slots":
        """Its slots on the running event loop."""
        try:
            return _POOLS.get()[self]
        except KeyError:
            pools = _POOLS.get()
        except LookupError:
            pools = WeakKeyDictionary[Pool, _Slots]()
            _POOLS.set(pools)
        slots = pools[self] = _Slots(anyio.CapacityLimiter(self._size))
        return slots


SHARED: Final = Pool(40)
"""For functions that only compute. Not those of anyio itself, for which others would have to queue."""


class RunInPool(Protocol):
    """Runs a function in a worker thread of a pool."""

    async def __call__(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """What the function returns."""
        ...


async def run_in_thread(call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
    """Run a function in a worker thread, and stay with it to its end.

    Raises:
        ThreadsExhausted: All threads of the pool were left behind.
    """
    slots = pool.slots()
    holder = object()
    await slots.take(holder)
    try:
        return await anyio.to_thread.run_sync(call, limiter=slots.uncounted)
    finally:
        slots.give_back(holder)


class LeavingThreads:
    """Runs the plain functions of one leg, and leaves those behind that are not done when the leg is cancelled."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0
        """How many were left behind."""

    async def run(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """Run a function in a worker thread, for as long as it is waited for.

        Raises:
            ThreadsExhausted: All threads of the pool were left behind.
        """
        slots = pool.slots()
        work = _Work(call, slots)
        await slots.take(work)
        try:
            await anyio.to_thread.run_sync(work, limiter=slots.uncounted, abandon_on_cancel=True)
        finally:
            if work.is_left_running():
                self.left += 1
                slots.leave()
            else:
                slots.give_back(work)
        return work.result()


class _Slots:
    """The slots of one pool on one event loop. All but a thread's own end happens on that loop."""

    __slots__ = ("_left", "_waiting", "limiter", "uncounted")

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self.limiter = limiter
        self._left = 0
        self._waiting: set[anyio.CancelScope] = set()
        # A slot is taken here, and given back when its thread ends; anyio would give it back with the call.
        self.uncounted = anyio.CapacityLimiter(math.inf)

    @property
    def _are_lost(self) -> bool:
        return self._left >= self.limiter.total_tokens

    async def take(self, holder: object) -> None:
        try:
            self.limiter.acquire_on_behalf_of_nowait(holder)
        except anyio.WouldBlock:
            await self._wait_for_one(holder)

    async def _wait_for_one(self, holder: object) -> None:
        if not self._are_lost:
            with anyio.CancelScope() as waiting:
                self._waiting.add(waiting)
                try:
                    await self.limiter.acquire_on_behalf_of(holder)
                finally:
                    self._waiting.discard(waiting)
                return
        raise ThreadsExhausted(int(self.limiter.total_tokens))

    def give_back(self, holder: object) -> None:
        self.limiter.release_on_behalf_of(holder)

    def leave(self) -> None:
        self._left += 1
        if self._are_lost:
            for waiting in self._waiting:
                waiting.cancel()

    def end(self, holder: object) -> None:
        """Note that a thread that was left behind has ended."""
        self._left -= 1
        self.give_back(holder)


_POOLS: Final[RunVar[WeakKeyDictionary[Pool, _Slots]]] = RunVar("roundtrip_pools")


class _Stage(Enum):
    NEW = "new"
    DROPPED = "dropped"
    RUNNING = "running"
    LEFT = "left"
    ENDED = "ended"


class _Work:
    """A function on its way through a thread that may be left behind. It holds the slot."""

    __slots__ = ("_call", "_error", "_lock", "_loop", "_scopes", "_slots", "_stage", "_value")

    _value: Any

    def __init__(self, call: Callable[[], Any], slots: _Slots) -> None:
        self._call = call
        self._slots = slots
        self._loop = current_token()
        self._stage = _Stage.NEW
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._scopes: set[anyio.CancelScope] = set()

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
            anyio.from_thread.run_sync(self._slots.end, self, token=self._loop)

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
