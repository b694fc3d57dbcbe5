"""Regular checks for a store's due tasks. They run every one to two seconds, and whenever the store changes."""

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
"""The minimum interval between regular checks, which run in case an announcement was lost. The actual interval is
random, up to twice this value.
"""
_MAX_SKIPPED: Final = 5_000
_MAX_OWN_CALLS: Final = 100
"""The maximum number of clients' calls to check. If there are more, leave those that clients asked for longest ago to
other processes.
"""


def begin_work(work: Coroutine[Any, Any, None], name: str, context: Context | None = None) -> asyncio.Task[None]:
    """Start an asyncio task. The task sees only the context variables in `context`."""
    return asyncio.get_running_loop().create_task(work, name=f"roundtrip: {name}", context=context or Context())


class OwnCalls:
    """The tasks that this process's clients have made or asked for. They are kept only if the process runs no other
    tasks.
    """

    def __init__(self, store: CallStore) -> None:
        self._store = store
        self._calls: dict[str, None] = {}

    def add(self, call_id: str) -> None:
        """Add a call's task. The task need not be stored yet."""
        self._calls.pop(call_id, None)
        self._calls[call_id] = None
        if len(self._calls) > _MAX_OWN_CALLS:
            del self._calls[next(iter(self._calls))]

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Return the due tasks, like `CallStore.due`. Tasks that have ended are forgotten until a client asks for them
        again.
        """
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
    """The source of due tasks for one event loop's worker. This base class delivers nothing: it is for a worker whose
    legs are begun by other code.
    """

    def look_soon(self) -> None:
        """Check soon, because the store has changed or the worker has room for more tasks."""

    def skip(self, call_id: str, seconds: float) -> None:
        """Leave a task to other workers for the given number of seconds."""

    def pause(self) -> None:
        """Deliver no more tasks."""

    async def close(self) -> None:
        """Release all resources. The worker has no running legs at this point."""


@dataclass(eq=False, repr=False)
class Sweep(CallDelivery):
    """An asyncio task that hands due calls to the worker of one event loop.

    Args:
        tasks: The tasks.
        hand_over: Receives the calls. The call that has been due longest comes first.
        system: The clocks and randomness.
        room: Returns how many calls the sweep may hand over.
        spread: The maximum random delay in seconds after a task is due. With this delay, several sweeps do not check at
            the same moment.
    """

    tasks: CallStore | OwnCalls
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
        """Check at once."""
        self._bell.set()

    def skip(self, call_id: str, seconds: float) -> None:
        """Do not hand over a call during the given number of seconds."""
        self._skipped[call_id] = self.system.monotonic() + seconds

    def expect(self, call_id: str, seconds: float) -> None:
        """Check again after the given number of seconds, when a call is due."""
        self._skipped.pop(call_id, None)
        # Calls that are due later are found by a regular check.
        if seconds < 2 * _SWEEP_SECONDS:
            asyncio.get_running_loop().call_later(max(0.0, seconds), self.look_soon, context=Context())

    def pause(self) -> None:
        """Stop handing over calls."""
        self._work.cancel()

    async def close(self) -> None:
        """Stop the asyncio task."""
        self._work.cancel()
        await asyncio.wait([self._work])

    async def _look_forever(self) -> None:
        while True:
            self._bell.clear()
            # The delay is random so that workers do not all check at the same moment.
            share = self.system.entropy(1)[0] / 256
            wait = _SWEEP_SECONDS * (1 + share)
            if (room := self.room()) > 0:
                following = await self._look(room)
                if following is not None:
                    wait = min(wait, max(0.0, following) + share * self.spread)
            # `asyncio.wait_for` is not used, because on Python 3.11 it loses a cancellation that arrives at the same
            # moment as the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._bell.wait()

    async def _look(self, room: int) -> float | None:
        """Hand over the due calls, and return the seconds until the next call is due."""
        now = self.system.monotonic()
        self._skipped = {call_id: until for call_id, until in self._skipped.items() if until > now}
        try:
            due, following = await self.tasks.due(room + min(len(self._skipped), _MAX_SKIPPED))
            await self.hand_over([call_id for call_id in due if call_id not in self._skipped][:room])
        except Exception as error:
            if not self._is_down:
                self._is_down = True
                is_expected = isinstance(error, LedgerDown)
                message = "tasks cannot be run; this error is not logged again until tasks can be run: %s"
                logger.error(message, error, exc_info=None if is_expected else error)
            return None
        if self._is_down:
            self._is_down = False
            logger.info("tasks can be run again")
        return following
