"""Event loops: which one runs here, and writes to a ledger in asyncio tasks of their own, after the leg."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, Final

from anyio.lowlevel import current_token

_LATER_TASKS: Final[set[asyncio.Task[Any]]] = set()
"""Asyncio tasks that write to a ledger later. An event loop has only weak references to its tasks."""


def is_on_asyncio() -> bool:
    """Return True on an event loop of asyncio. The SDK also runs on trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_on_event_loop() -> bool:
    """Return True in code that an event loop of any kind runs, and False in a worker thread."""
    try:
        current_token()
    except RuntimeError:
        return False
    return True


def run_later(work: Coroutine[Any, Any, object]) -> None:
    """Run a write in an asyncio task of its own."""
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _LATER_TASKS.add(task)
    task.add_done_callback(_LATER_TASKS.discard)


async def finish_late_writes() -> None:
    """Wait for the late writes of this event loop, before the process is frozen."""
    loop = asyncio.get_running_loop()
    if own := [task for task in _LATER_TASKS if task.get_loop() is loop]:
        await asyncio.wait(own)
