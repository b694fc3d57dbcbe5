"""Tell a cancellation of a leg from one that its own code runs into."""

import asyncio
import math
from typing import Any

import anyio

__all__ = ["cancel_requests", "innermost_scope", "is_cancelled", "strayed"]


def innermost_scope() -> object:
    """Return the innermost cancel scope of the running task, to compare; None for none, or on another loop.

    anyio has no public name for it. A test fails when it moves.
    """
    try:
        from anyio._backends import _asyncio as backend

        states: Any = vars(backend)["_task_states"]
        return states[asyncio.current_task()].cancel_scope
    except (ImportError, KeyError, RuntimeError, TypeError):
        return None


def cancel_requests() -> int:
    """Count the cancellation requests of the running task that were not taken back; 0 outside of asyncio."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def is_cancelled(before: int) -> bool:
    """Return True if the running code has been cancelled since `cancel_requests` was `before`."""
    return cancel_requests() > before or anyio.current_effective_deadline() == -math.inf


def strayed() -> RuntimeError:
    """Return the error for a cancellation in a call that was not cancelled: a failure of its code like any other."""
    return RuntimeError("it came upon a cancellation that was not its own: what it awaited had been cancelled")
