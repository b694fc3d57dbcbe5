"""A crash beside a pending question of a server on stdio."""

import pytest

from roundtrip.testing import Era
from tests.interaction.bodies.crashing import check_crash, shop
from tests.kit.hosts import stdio

pytestmark = pytest.mark.anyio


async def test_crash_on_stdio_keeps_the_connection(era: Era) -> None:
    await check_crash(stdio(shop), "anyio_group", era)
