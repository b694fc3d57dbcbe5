"""Worker-thread slots that owners share. An owner is, for example, a tool with its resolvers and steps.

A thread cannot be stopped. If its call times out, the thread is left behind, and keeps its slot until its function
returns. If left-behind threads hold all slots, calls that need a slot fail. Otherwise they would wait for threads that
may never end.

In a fair pool, an owner may take another slot only while it holds fewer than twice as many slots as are free. So an
owner gets at most 40 slots out of 60. A quarter of all slots is reserved for owners that have no slot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final
from weakref import WeakKeyDictionary

import anyio

from roundtrip.errors import ThreadsExhausted

SHARED_SECONDS: Final = 0.001
"""How long a plain function may run before the functions queued behind it move to other threads."""

_SHARE: Final = 2
"""How many slots an owner may hold for each free slot."""
_RESERVED: Final = 0.25
"""The fraction of the slots that is reserved for owners without a slot."""


class Pool:
    """A pool with a fixed number of slots on each event loop.

    Args:
        size: The number of slots.
        fair: True to reserve slots for other owners.
    """

    __slots__ = ("__weakref__", "_fair", "_of_loops", "_size")

    def __init__(self, size: int, *, fair: bool = False) -> None:
        self._size = size
        self._fair = fair
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()

    def slots(self) -> Slots:
        """Return the pool's slots on the running event loop."""
        loop = asyncio.get_running_loop()
        slots = self._of_loops.get(loop)
        if slots is None:
            slots = self._of_loops[loop] = Slots(anyio.CapacityLimiter(self._size), fair=self._fair)
        return slots


SHARED: Final = Pool(60, fair=True)
"""Slots for functions that do not wait for users. Other code uses anyio's own threads, and need not wait for these
slots.
"""


class Slots:
    """One pool's slots on one event loop. All methods run on that loop."""

    # `Slots` must not refer to the event loop, because then the loop would never be freed.
    __slots__ = ("_fair", "_held", "_left", "_waiting", "limiter")

    def __init__(self, limiter: anyio.CapacityLimiter, *, fair: bool) -> None:
        self.limiter = limiter
        self._fair = fair
        self._held: dict[Hashable, int] = {}
        self._left: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[tuple[object, asyncio.Future[bool]]]] = {}

    def _suffices(self, free: float, held: int) -> bool:
        """Return True if an owner with `held` slots may take another slot while `free` slots are free."""
        if not held or not self._fair:
            return free > 0
        return held < _SHARE * free and free > int(self.limiter.total_tokens * _RESERVED)

    def _may_take(self, owner: Hashable) -> bool:
        free = self.limiter.total_tokens - self.limiter.borrowed_tokens
        return self._suffices(free, self._held.get(owner, 0))

    def _is_lost(self, owner: Hashable) -> bool:
        """Return True if the left-behind threads are enough to keep the owner from getting a slot."""
        free = self.limiter.total_tokens - sum(self._left.values())
        return not self._suffices(free, self._left.get(owner, 0))

    def take_now(self, holder: object, owner: Hashable) -> bool:
        """Take a slot if the owner may have one now. Return True on success."""
        # This owner's earlier calls come first. Other owners' calls would not be waiting if they could take a slot.
        if owner in self._waiting or not self._may_take(owner):
            return False
        self._grant(holder, owner)
        return True

    async def take(self, holder: object, owner: Hashable) -> None:
        """Wait for a slot, and take it.

        Raises:
            ThreadsExhausted: The owner cannot get a slot.
        """
        if not self._is_lost(owner):
            granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            queue = self._waiting.setdefault(owner, deque())
            queue.append((holder, granted))
            try:
                if await granted:
                    return
            except BaseException:
                if granted.cancelled():
                    self._admit()
                elif granted.result():
                    self.give_back(holder, owner)
                raise
        raise ThreadsExhausted(self._left.get(owner) or sum(self._left.values()))

    def _grant(self, holder: object, owner: Hashable) -> None:
        self.limiter.acquire_on_behalf_of_nowait(holder)
        self._held[owner] = self._held.get(owner, 0) + 1

    def give_back(self, holder: object, owner: Hashable) -> None:
        """Give a slot back, and grant it to a waiting call."""
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
                while queue and queue[0][1].done():
                    queue.popleft()
                if queue and self._may_take(owner):
                    holder, granted = queue.popleft()
                    self._grant(holder, owner)
                    granted.set_result(True)
                    admitted = True
                if not queue:
                    del self._waiting[owner]

    def leave(self, owner: Hashable) -> None:
        """Record that a thread is still running after its call has ended."""
        self._left[owner] = self._left.get(owner, 0) + 1
        for waiting, queue in [*self._waiting.items()]:
            if self._is_lost(waiting):
                del self._waiting[waiting]
                for _, granted in queue:
                    if not granted.done():
                        granted.set_result(False)

    def end(self, holder: object, owner: Hashable) -> None:
        """Record that a left-behind thread has ended."""
        _decrease(self._left, owner)
        self.give_back(holder, owner)


def _decrease(counts: dict[Hashable, int], owner: Hashable) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]
