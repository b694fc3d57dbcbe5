"""Checks whether a cancellation is for the running code, or for something that the code awaited."""

import asyncio
import math

import anyio


def cancel_requests() -> int:
    """Return how many cancellation requests the running asyncio task has received; 0 outside asyncio."""
    try:
        asyncio_task = asyncio.current_task()
    except RuntimeError:
        return 0
    return asyncio_task.cancelling() if asyncio_task is not None else 0


def is_cancelled(before: int) -> bool:
    """Return True if the running code has been cancelled since `cancel_requests` returned `before`."""
    return cancel_requests() > before or anyio.current_effective_deadline() == -math.inf


def strayed() -> RuntimeError:
    """Return the error for a cancellation that the author's code caused, in a call that was not cancelled."""
    return RuntimeError("it awaited something that was cancelled, although the call itself was not cancelled")
