"""Provide the table of hosts that show apps."""

from collections.abc import Generator

import pytest

from tests.clients.tables import ClientTable, table_of_hosts


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Generator[ClientTable]:
    with table_of_hosts(request) as table:
        yield table
