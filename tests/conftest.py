"""Fixtures of all tests: the event loop and the two eras of the protocol."""

import pytest

from roundtrip.testing import Era


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def era(roundtrip_era: Era) -> Era:
    """Every test that takes it runs once on the retry era and once on the live era."""
    return roundtrip_era
