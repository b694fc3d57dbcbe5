"""Wait for changes of one stored call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio

from roundtrip.ledger.tasks import CallStore

NextChange = Callable[[], Awaitable[None]]
"""Returns once something has changed since the last time, or since the beginning; at times it returns too often."""


@contextmanager
def changes_of(store: CallStore, call_id: str) -> Generator[NextChange]:
    """Listen for changes of a call by any process. Look at the call inside, and then wait for the next change."""
    changed = anyio.Event()

    def note(other: str | None) -> None:
        if other in (None, call_id):
            changed.set()

    async def next_change() -> None:
        nonlocal changed
        await changed.wait()
        changed = anyio.Event()

    stop = store.listen(note)
    try:
        yield next_change
    finally:
        stop()
