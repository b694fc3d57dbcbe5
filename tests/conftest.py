"""Fixtures of all tests: the event loop, the two eras of the protocol, and a clock that goes as it is told."""

import time

import pytest

from tests.players import ERAS, Era


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=ERAS, ids=lambda era: era.name.lower())
def era(request: pytest.FixtureRequest) -> Era:
    """Every test that takes it runs once on the retry era and once on the live era."""
    return request.param


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
