"""Each two features of a tool do together what the stored table says, for each kind of client."""

import json
from typing import Any

import pytest

from tests.combinations.pairs import CLIENTS, FEATURES, QUICK, STORED, cells
from tests.kit.tiers import Tier, current_tier

pytestmark = pytest.mark.anyio


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each client and first feature."""
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", QUICK if current_tier() is Tier.FIRST else CLIENTS)
        metafunc.parametrize("first", FEATURES)


async def test_features_do_together_what_the_table_says(client: str, first: str) -> None:
    table: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    assert await cells(client, first) == table[client][first], "if it is meant: python -m tests.combinations.pairs"
