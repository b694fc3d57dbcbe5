"""Stores of the tests of pages."""

from collections.abc import Generator

import pytest

from tests.kit.stores import Servers, servers


@pytest.fixture(scope="module")
def started() -> Generator[Servers]:
    with servers() as running:
        yield running
