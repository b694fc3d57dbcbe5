"""What the views are tested with: a transcript in a folder of its own, and clocks in one time zone."""

import time
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def universal_time(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Times of day are shown in the local time zone; here that is UTC. The environment names no transcript."""
    monkeypatch.delenv("ROUNDTRIP_TRACE", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
