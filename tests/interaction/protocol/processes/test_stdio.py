"""The bookshop over stdio, in both eras."""

import pytest

from roundtrip.testing import Era
from tests.interaction.protocol.asking import check_asking
from tests.kit.bookshop import bookshop
from tests.kit.hosts import stdio

pytestmark = pytest.mark.anyio


async def test_calls_that_ask_in_all_ways_complete(era: Era) -> None:
    await check_asking(stdio(bookshop), era)
