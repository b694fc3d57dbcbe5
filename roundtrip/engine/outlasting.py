"""Having a body that must run once outlast its client: a result that is kept beats an outcome that nobody knows."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio

__all__ = ["CancellationShield"]

T = TypeVar("T")

OUTLASTS = 60.0
"""Seconds for which a body without a timeout of its own cannot be cut short by a client that leaves. With a
timeout it ends by itself."""


class CancellationShield:
    """Around the work of a leg, which a cancellation from outside ends until its body has begun."""

    __slots__ = ("_bounded", "_scope", "_timer")

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._scope = anyio.CancelScope()
        self._timer: asyncio.TimerHandle | None = None

    async def around(self, work: Awaitable[T]) -> T:
        """Do the work."""
        try:
            with self._scope:
                return await work
        finally:
            if self._timer is not None:
                self._timer.cancel()
        raise AssertionError("this scope is there to be shielded; nobody cancels it")

    def begin(self) -> None:
        """From here on, cancellations from outside wait."""
        self._scope.shield = True
        if not self._bounded and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(OUTLASTS, self._give_up)

    def _give_up(self) -> None:
        self._scope.shield = False
