"""Counts the looks of workers at the tasks that are due."""

from typing import Any

import pytest

from roundtrip.stored import sweep
from tests.kit.waiting import until

__all__ = ["Looks"]


class Looks:
    """Lets the workers of a test look often, counts their looks, and waits for some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        look: Any = vars(sweep.Sweep)["_look"]

        async def counted(looking: Any, room: int) -> Any:
            following = await look(looking, room)
            self._count += 1
            return following

        monkeypatch.setattr(sweep, "_SWEEP_SECONDS", 0.02)
        monkeypatch.setattr(sweep.Sweep, "_look", counted)

    async def more(self, number: int) -> None:
        """Wait until workers have looked so many times more."""
        ends = self._count + number
        await until(lambda: self._count >= ends)
