"""Waiting until a ledger entry is settled or released. Announcements wake the waiting legs.

Among the legs that wait for one entry on one event loop, only the first leg reads the entry, and it shares the result
with the rest. When the first leg stops waiting, the next leg takes over the reading.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, LedgerDown
from roundtrip.ledger.listeners import ChangeListeners, Feed

_HANDOVER_SECONDS: Final = 0.005
"""Seconds in which a woken leg can claim a free entry before the next leg is woken."""
_LOOK_SECONDS: Final = 1.0
"""Maximum seconds between two reads, in case an announcement was lost."""
_MAX_WAITERS: Final = 64
"""Maximum number of legs that may wait for one entry. Legs beyond this number come from repeats of the same request,
and get the current state without waiting.
"""

Look = Callable[[], Awaitable[ClaimAnswer | None]]


@dataclass(slots=True, eq=False)
class _ClaimWaiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    result: ClaimAnswer | LedgerDown | None = None


@dataclass(slots=True, eq=False)
class _EntryWatch:
    """Legs that wait for one entry on one event loop. The first leg reads the entry."""

    waiters: dict[_ClaimWaiter, None] = field(default_factory=dict[_ClaimWaiter, None])
    seen: ClaimAnswer | None = None
    """The state that the last read returned. It is None if the entry was free or has not been read."""
    was_free: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stop: Callable[[], None] = lambda: None
    """Function that stops listening for changes."""

    def share(self, result: ClaimAnswer | LedgerDown) -> None:
        for waiter in self.waiters:
            waiter.result = result
            waiter.woken.set()


class Waiting:
    """The legs in this process that wait for entries of one ledger.

    Args:
        feed: Announces changes from other processes; None for a ledger that only this process uses.
    """

    def __init__(self, feed: Feed | None = None) -> None:
        self._listeners = ChangeListeners(feed)
        self._watches: dict[tuple[asyncio.AbstractEventLoop, str], _EntryWatch] = {}

    def wake(self, key: str) -> None:
        """Wake the legs that wait for an entry, on all event loops, so that they read the entry again. Thread-safe."""
        self._listeners.announce(key)

    async def wait(self, key: str, look: Look, *, patience: float) -> ClaimAnswer | None:
        """Wait until no leg has the claim, but at most `patience` seconds, and return the entry's state.

        When the entry becomes free, the waiting legs are woken one after another. So each leg can claim the entry
        before the next leg tries.

        Args:
            key: The entry's key.
            look: Reads the entry's state.
            patience: Maximum seconds to wait.
        """
        if patience <= 0:
            return await look()
        watch_key = asyncio.get_running_loop(), key
        watch = self._watches.get(watch_key) or self._watch(watch_key)
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
                del self._watches[watch_key]
                watch.stop()

    def _watch(self, watch_key: tuple[asyncio.AbstractEventLoop, str]) -> _EntryWatch:
        watch = self._watches[watch_key] = _EntryWatch()
        watch.stop = self._listeners.listen(lambda _: watch.changed.set(), watch_key[1])
        return watch


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
        # Clear the event before reading, so that a change during the read is not missed.
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
