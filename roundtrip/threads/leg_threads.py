"""Worker threads for a leg's plain functions; the functions in one lane share a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel

from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.threads import HeldThread, PlainRun
from roundtrip.threads.slots import SHARED, SHARED_SECONDS, Pool

if TYPE_CHECKING:
    from roundtrip.engine import teardown
    from roundtrip.threads import workers

load_on_use(globals(), "roundtrip.engine.teardown", "roundtrip.threads.workers")

T = TypeVar("T")

_QUICK_SECONDS: Final = SHARED_SECONDS / 8
_QUICK_RUNS: Final = 4
_WAITING_THREADS: Final = 128


class Pace:
    """Recent speed of some functions. The functions count as quick if their last runs were short, and the loop never
    waited for them in vain.
    """

    __slots__ = ("_quick_runs",)

    def __init__(self) -> None:
        self._quick_runs = 0

    @property
    def is_quick(self) -> bool:
        """Return True if the loop may wait for the functions itself."""
        return self._quick_runs >= _QUICK_RUNS

    def note(self, seconds: float) -> None:
        """Note how long one run of the functions took."""
        self._quick_runs = self._quick_runs + 1 if seconds < _QUICK_SECONDS else 0

    def waits_for(self, work: workers.Work) -> bool:
        """Let the loop wait for a quick function. Return True if the function has ended."""
        if not self.is_quick:
            return False
        if work.wait_briefly():
            return True
        self._quick_runs = 0
        return False


class FunctionThreads:
    """Worker threads for one function, on all its legs.

    Args:
        owner: The owner of the threads' slots.
        leaves: True to leave a running function behind on cancellation; see `LegThreads`.
        waits_for_users: True if a plain body may wait for a user in its thread.
    """

    __slots__ = ("_leaves", "_owner", "_pace", "_pool")

    def __init__(self, owner: Hashable, *, leaves: bool, waits_for_users: bool) -> None:
        self._owner = owner
        self._leaves = leaves
        self._pace = Pace()
        # Threads that wait for users have their own pool, and take no slots from the pool that all functions share.
        self._pool = Pool(_WAITING_THREADS) if waits_for_users else SHARED

    def of_leg(self, *, home: Hashable) -> LegThreads:
        """Return a leg's threads; see `LegThreads`."""
        return LegThreads(self._owner, leaves=self._leaves, home=home, pace=self._pace, body_pool=self._pool)


@dataclass(slots=True, eq=False, repr=False)
class LegThreads:
    """One leg's worker threads, for its plain functions.

    Functions in one lane run in one thread. Lanes share a thread until a function takes longer than a millisecond.
    Lanes that have not started a function then move to other threads. The leg keeps its threads, but holds slots only
    while functions run.

    Args:
        owner: The owner of the threads' slots.
        leaves: True to leave a running function behind on cancellation. False to wait until it ends.
        home: The body's lane. Functions without a lane, such as steps, run in the body's thread while it is free.
        account: Another `LegThreads` that counts the left-behind threads; by default this one.
        pace: Recent speed of the functions for which the loop itself may wait.
        body_pool: The pool that provides the body's slot.
    """

    owner: Hashable = None
    _: KW_ONLY
    leaves: bool = False
    home: Hashable = None
    account: LegThreads | None = None
    pace: Pace | None = None
    body_pool: Pool = SHARED
    left: int = field(default=0, init=False)
    """Number of threads that were left behind."""
    _running: list[asyncio.Event] = field(default_factory=list[asyncio.Event], init=False)
    _seats: list[_Seat] = field(default_factory=list["_Seat"], init=False)
    _lanes: dict[Hashable, _Seat] = field(default_factory=dict[Hashable, "_Seat"], init=False)
    """The threads of lanes that have started a function."""

    @property
    def share_one(self) -> bool:
        """Return True if all lanes still share one thread, and that thread is idle."""
        seats = self._seats
        return not seats or (len(seats) == 1 and not seats[0].is_taken)

    def start(self, lane: Hashable) -> None:
        """Keep a lane in the thread that all lanes share. Only code in that thread calls this."""
        self._lanes.setdefault(lane, self._seats[0])

    async def run(
        self,
        call: Callable[[], T],
        /,
        *,
        lane: Hashable = None,
        pool: Pool = SHARED,
        is_alone: bool = False,
        begun: Callable[[], None] = lambda: None,
    ) -> T:
        """Run a function in its lane's thread.

        Args:
            call: The function.
            lane: The function's lane. A function without a lane runs in any thread.
            pool: The pool that provides the function's slot.
            is_alone: True if nothing else in the leg can run at the same time. The loop then blocks for a moment if the
                function is usually quick, because waking the loop takes longer.
            begun: Called if the loop continues while the function runs.

        Raises:
            ThreadsExhausted: Left-behind functions occupy all threads that the owner may have.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        seat = await self._take_seat(lane)
        try:
            return await self._run_at(seat, call, pool, self.pace if is_alone else None, begun)
        finally:
            seat.work, seat.is_taken = None, False
            seat.report_change()

    async def run_body(self, call: Callable[[], T], /) -> T:
        """Run the body in its lane's thread."""
        return await self.run(call, lane=self.home, pool=self.body_pool, is_alone=True)

    async def drive(self, run: PlainRun, *, lane: Hashable) -> None:
        """Run several functions in a lane's thread, until the loop must continue."""
        trip = workers.FunctionRun(run)
        try:
            await self.run(trip.run, lane=lane, is_alone=True, begun=trip.watch)
        finally:
            trip.end()

    async def _run_at(
        self, seat: _Seat, call: Callable[[], T], pool: Pool, pace: Pace | None, begun: Callable[[], None]
    ) -> T:
        slots, owner = pool.slots(), self._owner_of(call)
        work = workers.Work(call, may_be_left=self.leaves)
        if not slots.take_now(work, owner):
            await slots.take(work, owner)
        gone: asyncio.Event | None = None
        try:
            # A function that may keep running after its leg needs a separate scope, because the leg may be cancelled
            # from an outer scope.
            if not self.leaves and isinstance(scope := teardown.innermost_scope(), anyio.CancelScope):
                work.scope = scope
            with work.scope if self.leaves else nullcontext():
                seat.do(work)
                if pace is None or not pace.waits_for(work):
                    begun()
                    seat.report_change()
                    await (work.waiter if self.leaves else work.wait())
        finally:
            if not work.has_ended:
                gone = work.leave(lambda: slots.end(work, owner))
            if gone is None:
                slots.give_back(work, owner)
            else:
                seat.give_back(gone)
                slots.leave(owner)
                self.note_left(gone)
        if pace is not None:
            pace.note(work.seconds)
        return work.result()

    def _owner_of(self, call: Callable[[], Any]) -> Hashable:
        del call
        return self.owner

    async def _take_seat(self, lane: Hashable) -> _Seat:
        """Wait for a lane's thread. If a function runs for too long in the shared thread, a new lane takes another
        thread.
        """
        may_share = True
        while True:
            own = self._lanes.get(lane)
            seat = own or self._choose_seat(may_share=may_share)
            if not seat.is_taken:
                seat.is_taken = True
                if lane is not None:
                    self._lanes[lane] = seat
                return seat
            # A function's time in the shared thread begins only when the function has a slot.
            is_shared = own is None and seat.work is not None
            with anyio.move_on_after(seat.left_of_share() if is_shared else None) as scope:
                await seat.wait_for_change()
            may_share = may_share and not scope.cancelled_caught

    def _choose_seat(self, *, may_share: bool) -> _Seat:
        home = self._lanes.get(self.home)
        seats = self._seats if home is None else [home, *self._seats]
        for seat in seats:
            if not seat.is_taken:
                return seat
        for seat in seats:
            if may_share and seat.left_of_share() > 0:
                return seat
        seat = _Seat()
        self._seats.append(seat)
        return seat

    def note_left(self, gone: asyncio.Event) -> None:
        """Note a thread that was left behind; `gone` is set when it ends."""
        if self.account is not None:
            self.account.note_left(gone)
            return
        self.left += 1
        self._running.append(gone)

    def hold(self) -> HeldThread:
        """Keep the current thread for one more function. Only code in the thread calls this."""
        return workers.Worker.here().hold()

    def apart(self) -> LegThreads:
        """Return separate threads, for functions that must not wait for this leg's other functions."""
        return LegThreads(self.owner, leaves=self.leaves, account=self.account or self)

    def take_over(self, others: LegThreads, lanes: Mapping[Hashable, Hashable]) -> None:
        """Take over the threads of another plan on which this plan's lanes depend, and close that plan's remaining
        threads.

        Args:
            others: The other plan's threads.
            lanes: Maps each lane of this plan to the other plan's lane on which it depends.
        """
        for lane, other in lanes.items():
            seat = others._lanes.get(other)
            if seat is None:
                continue
            self._lanes[lane] = seat
            if seat not in self._seats:
                self._seats.append(seat)
                others._seats.remove(seat)
        others.close()

    def close(self) -> None:
        """Release the threads for other legs. Threads that were left behind become free when their functions end."""
        for seat in self._seats:
            seat.give_back()
        self._seats.clear()
        self._lanes.clear()

    def outlive(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` when all threads that were left behind have ended; return False if there are none.

        `work` runs in a separate asyncio task. It does not run if the loop ends before the threads.
        """
        running = [gone for gone in self._running if not gone.is_set()]
        leg = asyncio.current_task() if running else None
        if leg is None:
            return False

        async def when_ended() -> None:
            for gone in running:
                await gone.wait()
            await work()

        # A context variable can be reset only in the leg's context, which is available since Python 3.12.
        own = getattr(leg, "get_context", lambda: None)()
        task = asyncio.create_task(when_ended(), name="roundtrip: leave what a thread has used", context=own)
        _OUTLIVING.add(task)
        task.add_done_callback(_OUTLIVING.discard)
        return True


@dataclass(slots=True, eq=False, repr=False)
class _Seat:
    """One of a leg's threads, for one function at a time."""

    _worker: workers.Worker | None = None
    _changed: asyncio.Event | None = None
    is_taken: bool = False
    work: workers.Work | None = None

    async def wait_for_change(self) -> None:
        """Wait until the thread begins a function, or becomes idle."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def report_change(self) -> None:
        """Wake the coroutines that wait for a change."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def left_of_share(self) -> float:
        """Return how many more seconds a new lane waits for the running function before it takes another thread."""
        if self.work is None or self.work.began is None:
            return SHARED_SECONDS
        return SHARED_SECONDS - (monotonic() - self.work.began)

    def do(self, work: workers.Work) -> None:
        """Run a function in the thread."""
        if self._worker is None:
            self._worker = workers.Worker.take()
        self.work = work
        self._worker.do(work)

    def give_back(self, gone: asyncio.Event | None = None) -> None:
        """Give the thread back, so that the next function runs in another thread. If a function is still running,
        `gone` is set when it ends.
        """
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.left = gone
            worker.give_back(busy=gone is not None)


_OUTLIVING: Final[set[asyncio.Task[None]]] = set()
"""Strong references to asyncio tasks, because the event loop keeps only weak references."""
