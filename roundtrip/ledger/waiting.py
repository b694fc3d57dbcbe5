"""Wait until a ledger entry is settled or released, woken by announcements.

Of all legs that wait for one entry on one event loop, only the first reads the entry, and shares the result with the
others. When it stops waiting, the next leg reads.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, LedgerDown
from roundtrip.ledger.listeners import Announce

_HANDOVER_SECONDS: Final = 0.005
"""Time that a leg has to claim a free entry before the next leg is woken."""
_LOOK_SECONDS: Final = 1.0
"""Longest time between two reads, in case an announcement was lost."""
_MAX_WAITERS: Final = 64
"""Legs that may wait for one entry. Further legs are copies of one request, and get its state at once."""

Look = Callable[[], Awaitable[ClaimAnswer | None]]
Feed = Callable[[Announce], Coroutine[Any, Any, None]]
"""Runs on an event loop while legs wait there, and announces entries that have changed."""


@dataclass(slots=True, eq=False)
class _ClaimWaiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    result: ClaimAnswer | LedgerDown | None = None


@dataclass(slots=True, eq=False)
class _EntryWatch:
    """Legs that wait for one entry on one event loop; the first of them reads it."""

    waiters: dict[_ClaimWaiter, None] = field(default_factory=dict[_ClaimWaiter, None])
    seen: ClaimAnswer | None = None
    """The last state read; None if the entry was free or not read yet."""
    was_free: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def share(self, result: ClaimAnswer | LedgerDown) -> None:
        for waiter in self.waiters:
            waiter.result = result
            waiter.woken.set()


@dataclass(slots=True, eq=False)
class _LoopWatches:
    """Entries that legs wait for on one event loop."""

    loop: asyncio.AbstractEventLoop
    watches: dict[str, _EntryWatch] = field(default_factory=dict[str, _EntryWatch])
    feed: asyncio.Task[None] | None = None


class Waiting:
    """The legs of this process that wait for entries of one ledger.

    Args:
        feed: Announces the changes that other processes make; None if there are no other processes.
    """

    def __init__(self, feed: Feed | None = None) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopWatches] = {}

    def wake(self, key: str) -> None:
        """Let the waiting legs of an entry look again, on all event loops; any thread may call it."""
        if not self._loops:
            return
        with self._lock:
            for own in self._loops.values():
                watch = own.watches.get(key)
                if watch is not None and not own.loop.is_closed():
                    own.loop.call_soon_threadsafe(watch.changed.set)

    async def wait(self, key: str, look: Look, *, patience: float) -> ClaimAnswer | None:
        """Return the state of an entry as soon as no leg has the claim, or when the patience ends.

        A free entry is reported to one waiting leg after another, so that each can claim it before the next one tries.

        Args:
            key: The entry.
            look: Reads the state of the entry.
            patience: Seconds to wait.
        """
        if patience <= 0:
            return await look()
        own, watch = self._watch(key)
        if len(watch.waiters) >= _MAX_WAITERS:
            return watch.seen or await look()
        waiter = _ClaimWaiter()
        watch.waiters[waiter] = None
        try:
            return await _wait(watch, waiter, look, ends=anyio.current_time() + patience)
        finally:
            del watch.waiters[waiter]
            if watch.waiters:
                next(iter(watch.waiters)).woken.set()
            else:
                self._forget(own, key)

    def _watch(self, key: str) -> tuple[_LoopWatches, _EntryWatch]:
        loop = asyncio.get_running_loop()
        with self._lock:
            own = self._loops.setdefault(loop, _LoopWatches(loop))
            watch = own.watches.setdefault(key, _EntryWatch())
        if own.feed is None and self._feed is not None:
            own.feed = loop.create_task(self._feed(partial(self._announce, own)), context=contextvars.Context())
        return own, watch

    def _announce(self, own: _LoopWatches, key: str | None) -> None:
        if key is not None:
            self.wake(key)
            return
        for watch in own.watches.values():
            watch.changed.set()

    def _forget(self, own: _LoopWatches, key: str) -> None:
        with self._lock:
            del own.watches[key]
            if own.watches:
                return
            del self._loops[own.loop]
        if own.feed is not None:
            own.feed.cancel()


async def _wait(watch: _EntryWatch, waiter: _ClaimWaiter, look: Look, *, ends: float) -> ClaimAnswer | None:
    while next(iter(watch.waiters)) is not waiter:
        with anyio.move_on_after(ends - anyio.current_time()):
            await waiter.woken.wait()
        if isinstance(waiter.result, LedgerDown):
            raise LedgerDown(str(waiter.result)) from waiter.result
        if waiter.result is not None:
            return waiter.result
        if next(iter(watch.waiters)) is not waiter:
            return watch.seen if watch.seen is not None else await look()
    if watch.was_free:
        await _changed(watch, _HANDOVER_SECONDS)
    while True:
        # Clear the event before the read, so that a change during the read is not missed.
        watch.changed.clear()
        try:
            watch.seen = await look()
        except LedgerDown as error:
            watch.share(error)
            raise
        watch.was_free = watch.seen is None
        if watch.seen is None:
            return None
        if watch.seen.status is not ClaimStatus.RUNNING:
            watch.share(watch.seen)
            return watch.seen
        left = ends - anyio.current_time()
        if left <= 0:
            return watch.seen
        await _changed(watch, min(left, max(watch.seen.lease, _HANDOVER_SECONDS), _LOOK_SECONDS))


async def _changed(watch: _EntryWatch, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await watch.changed.wait()
