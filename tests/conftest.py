"""Fixtures of all tests: the event loop, the two eras of the protocol, and a clock that goes as it is told."""

import time

import pytest

from roundtrip.testing import Era


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def era(roundtrip_era: Era) -> Era:
    """Every test that takes it runs once on the retry era and once on the live era."""
    return roundtrip_era


class Clock:
    """The time of day of this whole process, standing still until it is moved."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Take it before any server is made: a server keeps the clock that it found."""
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock
