"""Fixtures of these tests: an empty log, and time limits that do not pass by themselves."""

import pytest

from tests.interaction.teardown.held import LOG
from tests.kit.time_limits import limits

__all__ = ["empty_log", "limits"]


@pytest.fixture(autouse=True)
def empty_log() -> None:
    LOG.clear()
