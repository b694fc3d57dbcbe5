"""Event loop checks, and ledger writes that run in separate asyncio tasks after a leg."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, Final

from anyio.lowlevel import current_token

_LATE_WRITES: Final[set[asyncio.Task[Any]]] = set()
"""Asyncio tasks for late ledger writes, kept here because an event loop refers to its tasks only weakly."""


def is_on_asyncio() -> bool:
    """Return True on an asyncio event loop. The SDK also runs on trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_on_event_loop() -> bool:
    """Return True on an event loop of any kind, and False in a worker thread."""
    try:
        current_token()
    except RuntimeError:
        return False
    return True


def run_later(work: Coroutine[Any, Any, object]) -> None:
    """Run a ledger write in a separate asyncio task."""
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _LATE_WRITES.add(task)
    task.add_done_callback(_LATE_WRITES.discard)


async def finish_late_writes() -> None:
    """Wait for this event loop's late ledger writes, before the process is frozen."""
    loop = asyncio.get_running_loop()
    if own := [task for task in _LATE_WRITES if task.get_loop() is loop]:
        await asyncio.wait(own)
