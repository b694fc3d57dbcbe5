"""Provide a server that `roundtrip call` calls."""

from collections.abc import Generator

import pytest

from tests.interaction.calls.servers import ours
from tests.interaction.calls.sessions import served


@pytest.fixture(scope="module")
def railway() -> Generator[str]:
    with served(ours) as url:
        yield url
