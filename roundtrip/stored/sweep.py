"""Look at the tasks of a store that are due, every one to two seconds, or as soon as something has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.tasks import CallStore
from roundtrip.system import System

logger = logging.getLogger("roundtrip")

_SWEEP_SECONDS: Final = 1.0
"""Time between two looks at what is due, in case an announcement was lost; up to twice as long, at random."""
_MAX_SKIPPED: Final = 5_000
_MAX_NAMED: Final = 100
"""The most calls of own clients to look at. Those asked for longest ago are left to other processes."""


def begin_work(work: Coroutine[Any, Any, None], name: str, context: Context | None = None) -> asyncio.Task[None]:
    """Begin work in an asyncio task of its own, which sees no context variables but those that are given."""
    return asyncio.get_running_loop().create_task(work, name=f"roundtrip: {name}", context=context or Context())


class NamedCalls:
    """Tasks that clients of one process have made or asked for, in a process that runs no others."""

    def __init__(self, store: CallStore) -> None:
        self._store = store
        self._calls: dict[str, None] = {}

    def add(self, call_id: str) -> None:
        """Add the task of a call, which may not be stored yet."""
        self._calls.pop(call_id, None)
        self._calls[call_id] = None
        if len(self._calls) > _MAX_NAMED:
            del self._calls[next(iter(self._calls))]

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Look for due ones, as `CallStore.due` does. What has ended is forgotten until a client asks for it again."""
        waits: list[tuple[float, str]] = []
        for call_id in list(self._calls):
            entry, now = await self._store.load(call_id)
            if entry is not None and entry.has_ended:
                self._calls.pop(call_id, None)
            elif entry is not None:
                waits.append((min(entry.due, entry.expires) - now, call_id))
        waits.sort()
        due = [call_id for wait, call_id in waits if wait <= 0]
        return due[:limit], None if due or not waits else waits[0][0]


class CallDelivery:
    """Source of the tasks of one event loop that are due. This one has none: its engine is told by other means."""

    def look_soon(self) -> None:
        """Note that the store has changed, or that the engine has room."""

    def skip(self, call_id: str, seconds: float) -> None:
        """Leave a task to other workers for some seconds."""

    def pause(self) -> None:
        """Deliver no more tasks."""

    async def close(self) -> None:
        """Release everything; the engine has no running legs."""


@dataclass(eq=False, repr=False)
class Sweep(CallDelivery):
    """Asyncio task of one event loop that hands over the calls of the tasks that are due.

    Args:
        tasks: The tasks.
        hand_over: Receives the calls, the longest due first.
        system: The clocks and randomness.
        room: Returns the number of calls that it may hand over.
        spread: Seconds, at most, that it lets pass after a task is due, at random, so that several sweeps do not all
            look at the same moment.
    """

    tasks: CallStore | NamedCalls
    hand_over: Callable[[Sequence[str]], Awaitable[None]]
    system: System
    _: KW_ONLY
    room: Callable[[], int]
    spread: float = 0.0
    _skipped: dict[str, float] = field(default_factory=dict[str, float], init=False)
    _bell: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_down: bool = field(default=False, init=False)
    _work: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._work = begin_work(self._look_forever(), "look at due tasks")

    def look_soon(self) -> None:
        """Look at once."""
        self._bell.set()

    def skip(self, call_id: str, seconds: float) -> None:
        """Do not hand over a call for some seconds."""
        self._skipped[call_id] = self.system.monotonic() + seconds

    def expect(self, call_id: str, seconds: float) -> None:
        """Look when a call is due, which is in some seconds."""
        self._skipped.pop(call_id, None)
        # Later ones are found by the next look.
        if seconds < 2 * _SWEEP_SECONDS:
            asyncio.get_running_loop().call_later(max(0.0, seconds), self.look_soon, context=Context())

    def pause(self) -> None:
        """Hand over no more calls."""
        self._work.cancel()

    async def close(self) -> None:
        """End the asyncio task."""
        self._work.cancel()
        await asyncio.wait([self._work])

    async def _look_forever(self) -> None:
        while True:
            self._bell.clear()
            # At random, so that workers do not look at once.
            share = self.system.entropy(1)[0] / 256
            wait = _SWEEP_SECONDS * (1 + share)
            if (room := self.room()) > 0:
                following = await self._look(room)
                if following is not None:
                    wait = min(wait, max(0.0, following) + share * self.spread)
            # Not `asyncio.wait_for`: on Python 3.11 it loses a cancellation that arrives together with the bell.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._bell.wait()

    async def _look(self, room: int) -> float | None:
        """Hand over what is due, and return the seconds until the next task is."""
        now = self.system.monotonic()
        self._skipped = {call_id: until for call_id, until in self._skipped.items() if until > now}
        try:
            due, following = await self.tasks.due(room + min(len(self._skipped), _MAX_SKIPPED))
            await self.hand_over([call_id for call_id in due if call_id not in self._skipped][:room])
        except Exception as error:
            if not self._is_down:
                self._is_down = True
                known = isinstance(error, LedgerDown)
                message = "tasks cannot be run, and this is not logged again until they can: %s"
                logger.error(message, error, exc_info=None if known else error)
            return None
        if self._is_down:
            self._is_down = False
            logger.info("tasks can be run again")
        return following
