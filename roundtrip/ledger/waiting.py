"""Wait for entries to be settled: of all who wait for one entry on one event loop, one looks for all of them.

The one who looks is one of those who wait, in its own task; when it leaves, another takes its place.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.lowlevel import RunVar

from roundtrip.ledger.contract import Claim, EntryState, LedgerDown

__all__ = ["Waiting"]

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2
_MOST_WAITING: Final = 64
"""How many may wait for one entry. More are copies of one request, and are told at once that it still runs."""

Look = Callable[[], Awaitable[Claim | None]]


@dataclass(slots=True, eq=False)
class _ClaimWaiter:
    woken: anyio.Event = field(default_factory=anyio.Event)
    told: Claim | LedgerDown | None = None


@dataclass(slots=True)
class _EntryWatch:
    """Those who wait for one entry; the first of them looks."""

    waiters: dict[_ClaimWaiter, None] = field(default_factory=dict[_ClaimWaiter, None])
    seen: Claim | None = None
    """What was last seen."""
    pause: float = 0.0


class Waiting:
    """The watches of one ledger."""

    def __init__(self) -> None:
        self._watches: RunVar[dict[str, _EntryWatch]] = RunVar(f"roundtrip_waiting_{id(self)}")

    async def wait(self, key: str, look: Look, *, patience: float) -> Claim | None:
        """Return how an entry stands when it does not run any more, or when the patience ends; None where it is gone.

        An entry that is gone is anybody's: those who wait are told of it one after another, so that each can claim it
        before the next one tries.

        Args:
            key: The entry.
            look: How it stands now.
            patience: Seconds to wait.
        """
        if patience <= 0:
            return await look()
        try:
            watches = self._watches.get()
        except LookupError:
            watches = dict[str, _EntryWatch]()
            self._watches.set(watches)
        watch = watches.setdefault(key, _EntryWatch())
        if len(watch.waiters) >= _MOST_WAITING:
            return watch.seen or await look()
        waiter = _ClaimWaiter()
        watch.waiters[waiter] = None
        try:
            return await _wait(watch, waiter, look, ends=anyio.current_time() + patience)
        finally:
            del watch.waiters[waiter]
            following = next(iter(watch.waiters), None)
            if following is not None:
                following.woken.set()
            elif watches.get(key) is watch:
                del watches[key]


async def _wait(watch: _EntryWatch, waiter: _ClaimWaiter, look: Look, *, ends: float) -> Claim | None:
    while next(iter(watch.waiters)) is not waiter:
        with anyio.move_on_after(ends - anyio.current_time()):
            await waiter.woken.wait()
        if isinstance(waiter.told, LedgerDown):
            raise LedgerDown(str(waiter.told)) from waiter.told
        if waiter.told is not None:
            return waiter.told
        if next(iter(watch.waiters)) is not waiter:
            return watch.seen if watch.seen is not None else await look()
    while True:
        left = ends - anyio.current_time()
        if watch.pause:
            await anyio.sleep(max(0.0, min(watch.pause, left)))
        try:
            watch.seen = await look()
        except LedgerDown as error:
            _tell_all(watch, error)
            raise
        if watch.seen is None:
            watch.pause = _FIRST_PAUSE
            return None
        if watch.seen.standing is not EntryState.RUNNING:
            _tell_all(watch, watch.seen)
            return watch.seen
        watch.pause = min(watch.pause * 2, _LONGEST_PAUSE) or _FIRST_PAUSE
        if anyio.current_time() >= ends:
            return watch.seen


def _tell_all(watch: _EntryWatch, told: Claim | LedgerDown) -> None:
    for waiter in watch.waiters:
        waiter.told = told
        waiter.woken.set()
