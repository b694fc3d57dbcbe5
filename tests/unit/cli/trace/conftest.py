"""Provide a transcript in its own folder, and one time zone."""

import time
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def universal_time(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Set the local time zone to UTC, and unset the transcript of the environment."""
    monkeypatch.delenv("ROUNDTRIP_TRACE", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
