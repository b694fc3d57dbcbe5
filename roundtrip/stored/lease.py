"""A worker's lease on a stored call. This lease is also the claim of the leg that the worker runs."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Final

import anyio

from roundtrip.engine.computed import NotedValue
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.lease import Lease, lease_seconds
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry, SeenEntry
from roundtrip.limited_logs import LimitedLog
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallContent, ContentUnreadable

logger = logging.getLogger("roundtrip")
# Limit how often these lines are logged, because each leg keeps retrying while the store is down.
_LOG: Final = LimitedLog(logger)

_PAUSES: Final = (0.1, 0.5, 1.0, 2.0)
"""The pauses between attempts to write to an unusable store. Later attempts use the last value."""
# Not `Final`: tests shorten it, so the value is read at each use.
END_SECONDS = 600.0
"""How many seconds a worker keeps trying to store a leg's outcome. It continues even after its lease has ended, because
no other worker knows the outcome.
"""
_LOOK_SECONDS: Final = 0.05
"""Seconds between the announcement that the store has changed and the check that the lease is still held."""
_MESSAGE_SECONDS: Final = 0.5
"""The minimum time between two writes of a status message."""


def _lease_of(entry: CallEntry) -> float:
    """Return how long a worker may be silent before another worker continues its task, or before the task is lost.

    No other worker can continue a body that must not begin twice. So the worker gets extra time to store the body's
    outcome.
    """
    return lease_seconds() + (END_SECONDS if entry.runs_once and entry.has_begun else 0.0)


class CallLease(Lease):
    """A worker's lease on a task.

    Args:
        book: The tasks.
        entry: The task as it was claimed.
        now: The time on the store's clock when the task was claimed.
    """

    def __init__(self, book: CallBook, entry: CallEntry, now: float) -> None:
        super().__init__(f"tool {entry.tool!r}")
        self._book = book
        self._seen = SeenEntry(entry, now, anyio.current_time)
        self._ahead = now - anyio.current_time()
        self.call_id = entry.call_id
        self.entry = entry
        """The task as it was claimed."""
        self.noted = [NotedValue(*book.seal.open(note, entry.call_id, "note")) for note in entry.notes]
        self._message_at = -_MESSAGE_SECONDS
        self.message: str | None = None
        """The leg's latest status message."""

    def clock(self) -> float:
        """Return the time on the store's clock. It is never earlier than the time of the worker's claim."""
        return anyio.current_time() + self._ahead

    async def start_body(self) -> None:
        """If the body must not begin twice, store that it has begun."""

        def begin(entry: CallEntry, now: float) -> None:
            entry.has_begun = True
            entry.renew(now, lease=_lease_of(entry))

        if self.entry.runs_once:
            await self.write(begin)

    async def note(self, noted: NotedValue) -> None:
        """Store a step's result."""
        text = self._book.seal.seal([noted.revision, noted.key, noted.value], self.call_id, "note")

        await self.write(lambda entry, now: entry.note(text, now, lease=_lease_of(entry)))

    def drop_results(self, entry: CallEntry) -> None:
        """Remove the results of all steps since the task was last parked, and keep only the steps' names. No leg needs
        the results.
        """
        seal = self._book.seal
        seal.rewrite_notes(entry, [(revision, key, None) for revision, key, _ in seal.notes(entry)])

    async def renew(self) -> None:
        """Extend the lease."""
        await self.write(lambda entry, now: entry.renew(now, lease=_lease_of(entry)))

    async def say(self, message: str) -> None:
        """Set the status message. At most two messages are written per second. The latest message is always written."""
        self.message = message
        now = anyio.current_time()
        if now - self._message_at >= _MESSAGE_SECONDS:
            self._message_at = now
            await self.write_content(StoredEvent.NOTE, lambda content, entry, now: None)
        else:
            self.begin_soon(self._say_again, after=self._message_at + _MESSAGE_SECONDS - now)

    async def _say_again(self) -> None:
        await self.say(self.message or "")

    async def write_content(
        self, event: StoredEvent | None, work: Callable[[CallContent, CallEntry, float], None], *, patience: float = 0.0
    ) -> None:
        """Change the content, and apply an event if one is given. The latest status message is stored with the content.

        Args:
            event: The worker's event.
            work: Changes the content.
            patience: See `write`.
        """

        def write(entry: CallEntry, now: float) -> None:
            content = self._book.seal.read(entry.content, self.call_id)
            if self.message is not None:
                content.message = self.message
            if event is not None:
                entry.apply(event, now)
            work(content, entry, now)
            entry.content = self._book.seal.write(content, self.call_id)

        await self.write(write, patience=patience)

    async def write(self, work: Callable[[CallEntry, float], None], *, patience: float = 0.0) -> None:
        """Change the task as the lease holder. Until another worker claims the task, this works even after the lease
        has ended.

        Args:
            work: Changes the task.
            patience: How many seconds to retry while the store cannot be used. Retries last at least until the lease
                ends.

        Raises:
            CallTakenOver: The lease is lost, or the task cannot be read or written. Another worker then continues from
                what is stored.
        """
        await self.write_held(partial(self._change_with_retries, self._fenced(work), patience))

    def _fenced(self, work: Callable[[CallEntry, float], None]) -> Callable[[CallEntry, float], bool]:
        def fenced(entry: CallEntry, now: float) -> bool:
            if not entry.is_held(*self._seen.writer):
                return False
            work(entry, now)
            return True

        return fenced

    async def _change_with_retries(self, work: Callable[[CallEntry, float], bool], patience: float) -> bool:
        """Change the task, and keep retrying for a while if the store cannot be used. Return True on success."""
        ends = max(self._confirmed_at + lease_seconds(), anyio.current_time() + patience)
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                return await self._change_once(work)
            except ContentUnreadable:
                _LOG.warning(
                    "a task of %s is now sealed with a key that this worker does not have, so another worker must "
                    "continue it; give all workers the new key before you run `roundtrip calls rekey`",
                    self.owner,
                )
                return False
            except LedgerDown as error:
                _LOG.warning("a worker cannot store a task of %s, and will try again: %s", self.owner, error)
                left = ends - anyio.current_time()
                if left <= 0:
                    break
                await anyio.sleep(min(pause, left))
        return False

    async def give_up(self) -> None:
        """Release the lease before the leg ends, so that another worker continues at once."""
        try:
            await self._change_once(self._fenced(CallEntry.give_up))
        except LedgerDown as error:
            logger.error("a worker could not release a task of %s: %s", self.owner, error)

    async def _change_once(self, work: Callable[[CallEntry, float], bool]) -> bool:
        return await self._book.change(self.call_id, work, seen=self._seen) or False

    def look_soon(self) -> None:
        """Start an asyncio task that soon checks the lease. If the lease is lost, this ends the leg.

        The store also announces this worker's own writes. So several announcements trigger only one check.
        """
        self.begin_soon(self._look, after=_LOOK_SECONDS)

    async def _look(self) -> None:
        with suppress(LedgerDown):
            entry, _ = await self._book.store.load(self.call_id)
            if entry is None or not entry.is_held(*self._seen.writer):
                self.lose()
