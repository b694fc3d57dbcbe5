"""Fixtures of all tests: the event loop, and the two eras of the protocol."""

import pytest

from tests.players import ERAS, Era


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=ERAS, ids=lambda era: era.name.lower())
def era(request: pytest.FixtureRequest) -> Era:
    """Every test that takes it runs once on the retry era and once on the live era."""
    return request.param
