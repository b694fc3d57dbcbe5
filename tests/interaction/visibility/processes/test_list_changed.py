"""Clients of a server over stdio are notified once of a list that a request changed."""

import pytest

from roundtrip.testing import Era
from tests.interaction.visibility.announcing import LISTS, hearing, shop
from tests.kit.hosts import stdio

pytestmark = pytest.mark.anyio


async def test_changes_are_delivered_once_over_stdio(era: Era) -> None:
    async with hearing(stdio(shop), era, standing=True) as (client, ears):
        for listing in LISTS:
            await client.call_tool("change", {"tag": listing})
    assert ears.heard == list(LISTS)
