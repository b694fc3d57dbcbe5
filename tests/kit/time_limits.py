"""Tool time limits that expire only when a test says so."""

import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import pytest

from roundtrip.engine import interruptions
from tests.kit.waiting import until

__all__ = ["LIMIT", "TimeLimits", "hang", "hold_limits", "limits"]

LIMIT: Final = 5.0
"""Seconds for a tool's `timeout=`, which no test waits for."""

_NEVER: Final = 1e6


class TimeLimits:
    """Time limits for all legs that have begun. A leg's limit pauses while a person or page is awaited."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """Each clock's limit, once for each start."""
        self._clocks: list[tuple[anyio.CancelScope, float]] = []

    def start(self, scope: anyio.CancelScope, seconds: float) -> None:
        """Replace `cancel_after` with a limit that does not expire by itself."""
        self.seconds.append(seconds)
        self._clocks.append((scope, seconds))
        scope.deadline = anyio.current_time() + _NEVER

    def expire(self, seconds: float | None = None) -> None:
        """Expire all running clocks, or those with this limit."""
        for scope, limit in self._clocks:
            if scope.deadline < math.inf and seconds in (None, limit):
                scope.deadline = -math.inf

    @asynccontextmanager
    async def expiring(self, condition: Callable[[], object], seconds: float | None = None) -> AsyncGenerator[None]:
        """Expire the limits once a condition is true, while the body of this context runs."""

        async def expire() -> None:
            await until(condition)
            self.expire(seconds)

        async with anyio.create_task_group() as group:
            group.start_soon(expire)
            yield
            group.cancel_scope.cancel()


_held: list[TimeLimits] = []


@contextmanager
def hold_limits() -> Generator[TimeLimits]:
    """Keep all legs' time limits from expiring by themselves."""
    held = TimeLimits()
    _held.append(held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interruptions, "cancel_after", held.start)
        yield held
    _held.remove(held)


async def hang(seconds: float | None = None) -> None:
    """Expire the running legs' limits, or those with this limit, and never return."""
    for held in _held:
        held.expire(seconds)
    await anyio.sleep_forever()


@pytest.fixture
def limits() -> Generator[TimeLimits]:
    """Let tools' time limits expire when the test says so."""
    with hold_limits() as held:
        yield held
