"""Time limits of tools that pass when a test says so, and not before."""

import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import pytest

from roundtrip.engine import interruptions
from tests.kit.waiting import until

__all__ = ["LIMIT", "TimeLimits", "hang", "limits", "limits_held"]

LIMIT: Final = 5.0
"""Seconds for the `timeout=` of tools, which no test waits for."""

_NEVER: Final = 1e6


class TimeLimits:
    """The time limits of the legs that have begun. A leg's limit does not run while a person or page is waited for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """The limit of each clock, once for each time that it started."""
        self._clocks: list[tuple[anyio.CancelScope, float]] = []

    def start(self, scope: anyio.CancelScope, seconds: float) -> None:
        """Do what `cancel_after` does, without a limit that passes by itself."""
        self.seconds.append(seconds)
        self._clocks.append((scope, seconds))
        scope.deadline = anyio.current_time() + _NEVER

    def expire(self, seconds: float | None = None) -> None:
        """End the time of all clocks that run, or of those with this limit."""
        for scope, limit in self._clocks:
            if scope.deadline < math.inf and seconds in (None, limit):
                scope.deadline = -math.inf

    @asynccontextmanager
    async def expiring(self, condition: Callable[[], object], seconds: float | None = None) -> AsyncGenerator[None]:
        """End the time as soon as a condition is true, while the body of this context runs."""

        async def expire() -> None:
            await until(condition)
            self.expire(seconds)

        async with anyio.create_task_group() as group:
            group.start_soon(expire)
            yield
            group.cancel_scope.cancel()


_held: list[TimeLimits] = []


@contextmanager
def limits_held() -> Generator[TimeLimits]:
    """Let no time limit of a leg pass by itself."""
    held = TimeLimits()
    _held.append(held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interruptions, "cancel_after", held.start)
        yield held
    _held.remove(held)


async def hang(seconds: float | None = None) -> None:
    """End the time of the legs that run, or of those with this limit, and never return."""
    for held in _held:
        held.expire(seconds)
    await anyio.sleep_forever()


@pytest.fixture
def limits() -> Generator[TimeLimits]:
    """Let time limits of tools pass when the test says so."""
    with limits_held() as held:
        yield held
