"""Telling the cancellation of a leg from one that its own code has come upon."""

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
    """How often the running task was asked to end, and has not taken that back; 0 on another loop than asyncio's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def is_cancelled(before: int) -> bool:
    """Whether somebody has cancelled the running code since `cancel_requests` was `before`."""
    return cancel_requests() > before or anyio.current_effective_deadline() == -math.inf


def strayed() -> RuntimeError:
    """What a cancellation is to a call that nobody has cancelled: a failure of its code like any other."""
    return RuntimeError("it came upon a cancellation that was not its own: what it awaited had been cancelled")
