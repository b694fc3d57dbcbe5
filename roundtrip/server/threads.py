"""Run plain functions in worker threads, with a share of threads for each tool.

A thread cannot be stopped. If its call times out, it is left behind, and keeps its slot until its function returns.
Once such threads hold every slot, calls that need one fail: they would queue behind threads that may never end.

In a fair pool, each slot has an owner, such as a tool with its resolvers and steps. An owner gets another slot only
while it has less than twice as many as are free, so it gets at most 40 of 60. A quarter of all slots is reserved for
owners that have none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary, ref

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar, current_token

from roundtrip.errors import ThreadsExhausted
from roundtrip.resolvers.threads import SHARED_SECONDS, Driven

if TYPE_CHECKING:
    from roundtrip.server.workers import Worker

__all__ = ["SHARED", "LegThreads", "Pace", "Pool", "RunInPool", "run_in_thread", "unless_left"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_SHARE: Final = 2
"""The most slots of one owner, as a multiple of the free slots."""
_RESERVED: Final = 0.25
"""The part of all slots that is reserved for owners without a slot."""
_MOMENT: Final = SHARED_SECONDS / 4
"""The seconds that the loop itself waits for a function that was quick."""


class Pool:
    """Worker threads on each event loop.

    Args:
        size: The number of threads.
        fair: True to keep threads for other owners.
    """

    __slots__ = ("__weakref__", "_fair", "_latest", "_size")

    def __init__(self, size: int, *, fair: bool = False) -> None:
        self._size = size
        self._fair = fair
        # The slots that were used last: most processes have one loop, and finding it is slow.
        self._latest: ref[_Slots] | None = None

    def slots(self) -> _Slots:
        """Return its slots on the running event loop."""
        slots = None if self._latest is None else self._latest()
        if slots is not None and slots.loop is asyncio.get_running_loop():
            return slots
        try:
            pools = _POOLS.get()
        except LookupError:
            pools = WeakKeyDictionary[Pool, _Slots]()
            _POOLS.set(pools)
        slots = pools.get(self)
        if slots is None:
            slots = pools[self] = _Slots(anyio.CapacityLimiter(self._size), fair=self._fair)
        self._latest = ref(slots)
        return slots


SHARED: Final = Pool(60, fair=True)
"""For functions that only compute. Other code, which uses anyio's own threads, need not wait for them."""


class Pace:
    """Pace of some functions: True if they were quick when they last ran."""

    __slots__ = ("is_quick",)

    def __init__(self) -> None:
        self.is_quick = False


class RunInPool(Protocol):
    """Runs a function in a worker thread of a pool."""

    async def __call__(self, call: Callable[[], T], /, *, pool: Pool = SHARED) -> T:
        """Return the function's result."""
        ...


async def run_in_thread(call: Callable[[], T], /, *, pool: Pool = SHARED, owner: Hashable = None) -> T:
    """Run one function in a worker thread for an owner, and wait until it ends.

    Raises:
        ThreadsExhausted: All threads that the owner may have were left behind.
    """
    threads = LegThreads(owner)
    try:
        return await threads.run(call, pool=pool)
    finally:
        threads.close()


class LegThreads:
    """Worker threads of one leg, for its plain functions.

    Functions of one lane run in one thread. Lanes share a thread until a function exceeds a millisecond. Then lanes of
    which no function has started move to other threads. The leg keeps its threads, and holds slots only for functions
    that run.

    Args:
        owner: The owner of its slots.
        leaves: True to leave a running function behind on cancellation. False to wait until it ends.
        home: The lane of the body. Functions without a lane, such as steps, run in its thread while it is free.
        account: The threads that count those which are left behind, if not these.
        pace: The pace of what `drive` runs.
    """

    __slots__ = (
        "_account",
        "_home",
        "_lanes",
        "_leaves",
        "_outliving",
        "_owner",
        "_pace",
        "_running",
        "_seats",
        "_started",
        "left",
    )

    def __init__(
        self,
        owner: Hashable = None,
        *,
        leaves: bool = False,
        home: Hashable = None,
        account: LegThreads | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._owner = owner
        self._leaves = leaves
        self._home = home
        self._account = account
        self._pace = pace
        self.left = 0
        """Threads that were left behind."""
        self._running: list[asyncio.Event] = []
        self._outliving = False
        self._seats: list[_Seat] = []
        self._lanes: dict[Hashable, _Seat] = {}
        self._started: set[Hashable] = set()
        """Lanes that stay in their thread."""

    @property
    def share_one(self) -> bool:
        """Return True if all lanes still share one thread, which is free."""
        seats = self._seats
        return not seats or (len(seats) == 1 and not seats[0].is_taken)

    def start(self, lane: Hashable) -> None:
        """Keep a lane in the thread that all share. Code in that thread calls it."""
        if lane not in self._started:
            self._started.add(lane)
            self._lanes[lane] = self._seats[0]

    async def run(
        self, call: Callable[[], T], /, *, lane: Hashable = None, pool: Pool = SHARED, pace: Pace | None = None
    ) -> T:
        """Run a function in the thread of its lane.

        If it was quick before, the loop itself waits for it a moment. To be woken by the thread takes the loop longer
        than that.

        Args:
            call: The function.
            lane: Its lane; without one, it runs in any thread.
            pool: The pool that has a slot for it.
            pace: Its pace, if nothing else of the leg can go on meanwhile.

        Raises:
            ThreadsExhausted: All threads that the owner may have were left behind.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        is_alone = lane is None
        if is_alone:
            lane = object()
        try:
            seat = self._seat_of(lane)
            if seat.is_taken:
                seat = await self._wait_for_turn(seat, lane)
            else:
                seat.is_taken = True
                self._started.add(lane)
            try:
                return await self._run_at(seat, call, pool, pace)
            finally:
                self._end_turn(seat)
        finally:
            if is_alone:
                self._lanes.pop(lane, None)
                self._started.discard(lane)

    async def drive(self, work: Driven, *, lane: Hashable, shares: bool) -> None:
        """Run functions in the thread of a lane, until the loop has to go on; see `Drive`."""
        from roundtrip.server.drive import Drive  # tools without plain functions need neither this nor `workers`

        await Drive(work, shares=shares).run(partial(self.run, lane=lane, pace=self._pace))

    async def _run_at(self, seat: _Seat, call: Callable[[], T], pool: Pool, pace: Pace | None) -> T:
        slots, leaves, owner = pool.slots(), self._leaves, self._owner_of(call)
        work = _Work(call, slots, owner, seat)
        if not slots.take_now(work, owner):
            await slots.take(work, owner)
        try:
            if leaves:
                # A scope of its own: the leg may be cancelled within an outer scope.
                with anyio.CancelScope() as work.scope:
                    work.context.run(_WORK.set, work)
                    seat.do(work)
                    if not work.wait_briefly(pace):
                        await work.waiter
            else:
                work.scope = _innermost_scope() or anyio.CancelScope()
                seat.do(work)
                if not work.wait_briefly(pace):
                    await work.wait()
        finally:
            gone = work.leave_running() if leaves else None
            if gone is not None:
                slots.leave(owner)
                self.note_left(gone)
            else:
                slots.give_back(work, owner)
        return work.result(pace)

    def _owner_of(self, call: Callable[[], Any]) -> Hashable:
        del call
        return self._owner

    def _seat_of(self, lane: Hashable) -> _Seat:
        seat = self._lanes.get(lane)
        if seat is None:
            seats = self._seats
            home = self._lanes.get(self._home)
            if home is not None and not home.is_taken:
                seat = home
            else:
                seat = next((one for one in seats if not one.is_taken), None)
                seat = seat or next((one for one in seats if one.left_of_share() > 0), None) or self._new_seat()
            self._lanes[lane] = seat
        return seat

    def _new_seat(self) -> _Seat:
        seat = _Seat()
        self._seats.append(seat)
        return seat

    async def _wait_for_turn(self, seat: _Seat, lane: Hashable) -> _Seat:
        turn = _Turn(lane, seat, asyncio.get_running_loop().create_future())
        seat.turns.append(turn)
        self._watch(seat)
        try:
            await turn.granted
        except BaseException:
            if turn.granted.cancelled():
                turn.seat.turns.remove(turn)
            else:
                self._end_turn(turn.seat)
            raise
        return turn.seat

    def _end_turn(self, seat: _Seat) -> None:
        seat.is_taken = False
        seat.work = None
        self._grant_next(seat)

    def _grant_next(self, seat: _Seat) -> None:
        for turn in seat.turns:
            if not turn.granted.done():
                seat.turns.remove(turn)
                seat.is_taken = True
                self._started.add(turn.lane)
                turn.granted.set_result(None)
                return

    def _watch(self, seat: _Seat) -> None:
        """Move what waits for a thread once the running function has exceeded its share."""
        if not seat.is_watched and any(turn.lane not in self._started for turn in seat.turns):
            seat.is_watched = True
            delay = max(seat.left_of_share(), 0)
            # An empty context, as the loop keeps a timer until its time.
            asyncio.get_running_loop().call_later(delay, self._spread, seat, context=Context())

    def _spread(self, seat: _Seat) -> None:
        seat.is_watched = False
        if seat.left_of_share() > 0:
            self._watch(seat)
            return
        moving = [turn for turn in seat.turns if turn.lane not in self._started]
        for lane in dict.fromkeys(turn.lane for turn in moving):
            other = self._lanes[lane] = self._new_seat()
            for turn in moving:
                if turn.lane == lane:
                    seat.turns.remove(turn)
                    turn.seat = other
                    other.turns.append(turn)
            self._grant_next(other)

    def note_left(self, gone: asyncio.Event) -> None:
        """Note a thread that was left behind; `gone` is set when it ends."""
        if self._account is not None:
            self._account.note_left(gone)
            return
        self.left += 1
        self._running.append(gone)

    def apart(self) -> LegThreads:
        """Return threads for functions that must not wait for these."""
        return LegThreads(self._owner, leaves=self._leaves, account=self._account or self)

    def close(self) -> None:
        """Let other legs have the threads. Those that were left behind are free when their functions end."""
        if self._outliving:
            return
        for seat in self._seats:
            seat.close()
        self._seats.clear()
        self._lanes.clear()

    def outlive(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` when all threads that were left behind have ended; return False if there are none.

        It runs in its own asyncio task, unless the loop ends before the threads.
        """
        running = [gone for gone in self._running if not gone.is_set()]
        leg = asyncio.current_task() if running else None
        if leg is None:
            return False
        self._outliving = True

        async def when_ended() -> None:
            for gone in running:
                await gone.wait()
            try:
                await work()
            finally:
                self._outliving = False
                self.close()

        # A context variable can be reset only in the leg's own context, which Python has since 3.12.
        own = getattr(leg, "get_context", lambda: None)()
        task = asyncio.create_task(when_ended(), name="roundtrip: leave what a thread has used", context=own)
        _OUTLIVING.add(task)
        task.add_done_callback(_OUTLIVING.discard)
        return True


@dataclass(slots=True, eq=False)
class _Turn:
    """Function that waits for a thread."""

    lane: Hashable
    seat: _Seat
    granted: asyncio.Future[None]


class _Seat:
    """One thread of a leg, with the functions that wait for it."""

    __slots__ = ("_worker", "is_taken", "is_watched", "turns", "unfinished", "work")

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self.unfinished = 0
        """Functions that the thread has not ended."""
        self.is_taken = False
        self.is_watched = False
        self.work: _Work | None = None
        self.turns: list[_Turn] = []

    def left_of_share(self) -> float:
        """Return the seconds that the running function may go on before what waits for the thread moves."""
        if self.work is None or self.work.began is None:
            return SHARED_SECONDS
        return SHARED_SECONDS - (monotonic() - self.work.began)

    def do(self, work: _Work) -> None:
        """Run a function in the thread."""
        if self._worker is None:
            self._worker = _take_worker()
        self.unfinished += 1
        self.work = work
        self._worker.do(work)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.give_back(busy=bool(self.unfinished))
            self._worker = None


def _take_worker() -> Worker:
    from roundtrip.server.workers import Worker

    return Worker.take()


def _innermost_scope() -> anyio.CancelScope | None:
    from roundtrip.engine.teardown import innermost_scope

    return cast("anyio.CancelScope | None", innermost_scope())


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

    __slots__ = ("__weakref__", "_fair", "_held", "_left", "_waiting", "limiter", "loop", "token")

    def __init__(self, limiter: anyio.CapacityLimiter, *, fair: bool) -> None:
        self.limiter = limiter
        self.loop = asyncio.get_running_loop()
        self.token = current_token()
        self._fair = fair
        self._held: dict[Hashable, int] = {}
        self._left: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[_SlotWaiter]] = {}

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

    def take_now(self, holder: object, owner: Hashable) -> bool:
        """Take a slot, and return True, if the owner may have one now."""
        # Earlier calls of this owner come first; those of other owners could not have the slot.
        if owner in self._waiting or not self._may_take(owner):
            return False
        self._grant(holder, owner)
        return True

    async def take(self, holder: object, owner: Hashable) -> None:
        """Wait for a slot, and take it.

        Raises:
            ThreadsExhausted: The owner cannot get one.
        """
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

    def end(self, work: _Work, owner: Hashable) -> None:
        """Record that a thread that was left behind has ended."""
        _decrease(self._left, owner)
        self.give_back(work, owner)


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

    __slots__ = (
        "_call",
        "_error",
        "_gone",
        "_has_ended",
        "_lock",
        "_owner",
        "_scopes",
        "_seat",
        "_slots",
        "_stage",
        "_value",
        "_watcher",
        "began",
        "context",
        "ended",
        "scope",
        "token",
        "waiter",
    )

    _value: Any

    def __init__(self, call: Callable[[], Any], slots: _Slots, owner: Hashable, seat: _Seat) -> None:
        self._call = call
        self._owner = owner
        self._seat = seat
        self._slots = slots
        self._stage = _Stage.NEW
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._scopes: tuple[anyio.CancelScope, ...] = ()
        self.waiter: asyncio.Future[None] = slots.loop.create_future()
        """Done when the function has returned."""
        self._has_ended = False
        self._watcher: threading.Lock | None = None
        """Held while the loop itself waits for the thread, until the function has returned."""
        self.began: float | None = None
        self.ended = 0.0
        self._gone: asyncio.Event | None = None
        """Set on the loop when a thread that was left behind has ended."""
        self.context = copy_context()
        self.token = slots.token
        self.scope: anyio.CancelScope | None = None

    def __call__(self) -> None:
        """Run the function, in the thread."""
        with self._lock:
            if self._stage is _Stage.DROPPED:
                return
            self._stage = _Stage.RUNNING
        self.began = monotonic()
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self.ended = monotonic()
        if self._has_been_left():
            error, self._error = self._error, None
            if error is not None:
                logger.info("a function raised an exception in a thread whose call had ended", exc_info=error)

    def _has_been_left(self) -> bool:
        with self._lock:
            if self._stage is _Stage.LEFT:
                return True
            self._stage = _Stage.ENDED
            return False

    def report_end(self) -> None:
        """Tell the loop that the function has returned, in the thread."""
        # It may refer to this work.
        del self.context
        with self._lock:
            self._has_ended = True
            watcher = self._watcher
        if watcher is not None:
            watcher.release()
        else:
            self._slots.loop.call_soon_threadsafe(self._end, context=Context())

    def _end(self) -> None:
        self._seat.unfinished -= 1
        if self._gone is not None:
            self._slots.end(self, self._owner)
            self._gone.set()
        elif not self.waiter.done():
            self.waiter.set_result(None)

    def wait_briefly(self, pace: Pace | None) -> bool:
        """Wait on the loop for a quick function, a moment at most; return True if it has returned."""
        if pace is None or not pace.is_quick:
            return False
        watcher = threading.Lock()
        watcher.acquire()
        with self._lock:
            if not self._has_ended:
                self._watcher = watcher
        if self._watcher is None:
            # It has told the loop already.
            return False
        if not watcher.acquire(timeout=_MOMENT):
            with self._lock:
                if not self._has_ended:
                    self._watcher = None
                    return False
        self._seat.unfinished -= 1
        return True

    async def wait(self) -> None:
        """Wait until the function has returned, also if the leg is cancelled."""
        try:
            await self.waiter
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                while not self._has_ended:
                    self.waiter = self._slots.loop.create_future()
                    # Another cancellation, from asyncio itself.
                    with suppress(asyncio.CancelledError):
                        await self.waiter
            raise

    def leave_running(self) -> asyncio.Event | None:
        """Leave the thread behind if it still runs. Return an event that is set when it ends."""
        with self._lock:
            if self._stage is _Stage.RUNNING:
                self._stage = _Stage.LEFT
                self._gone = asyncio.Event()
                for scope in self._scopes:
                    scope.cancel()
            elif self._stage is _Stage.NEW:
                self._stage = _Stage.DROPPED
        return self._gone

    @contextmanager
    def unless_left(self) -> Generator[None]:
        """Surround work that the thread hands to its event loop."""
        with anyio.CancelScope() as scope:
            if self._stage is _Stage.LEFT:
                scope.cancel()
            self._scopes += (scope,)
            try:
                yield
            finally:
                self._scopes = tuple(one for one in self._scopes if one is not scope)

    def result(self, pace: Pace | None = None) -> Any:
        """Return the function's result, or raise its exception. Note its pace."""
        if pace is not None and self.began is not None:
            pace.is_quick = self.ended - self.began < _MOMENT
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
