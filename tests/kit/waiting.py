"""Bounded waits for conditions, in event loops and in threads."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

__all__ = ["WAIT", "until", "until_plain"]

WAIT: Final = 60.0
"""Seconds after which a test gives up. A busy machine can be ten times slower than an idle one."""

_PAUSE: Final = 0.01


async def until(condition: Callable[[], object | Awaitable[object]], *, what: str = "the condition") -> None:
    """Wait until a condition, which may be a coroutine function, returns a true value.

    Raises:
        AssertionError: The value stayed false for `WAIT` seconds.
    """
    ends = time.monotonic() + WAIT
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < ends, f"{what} did not hold within {WAIT:g} s"
        await anyio.sleep(_PAUSE)


def until_plain(condition: Callable[[], object], *, what: str = "the condition") -> None:
    """Wait in a thread until a condition returns a true value.

    Raises:
        AssertionError: The value stayed false for `WAIT` seconds.
    """
    ends = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < ends, f"{what} did not hold within {WAIT:g} s"
        time.sleep(_PAUSE)
