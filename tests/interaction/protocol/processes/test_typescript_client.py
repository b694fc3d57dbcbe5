"""The TypeScript SDK's client takes a round without questions.

Skipped where the npm package `@modelcontextprotocol/client`, or Node, is not found; `.ci/run` installs both in `.ci`.
"""

import pytest

from roundtrip import Server
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import served
from tests.clients.drivers import Target, ToolCall, driver_of
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("node")]


async def test_typescript_client_takes_a_round_without_questions() -> None:
    server = Server("cinema", ledger=MemoryLedger())
    charged: list[int] = []

    @server.tool(exactly_once=True, uncovered="round")
    async def charge(euros: int) -> int:
        charged.append(euros)
        return euros

    driver = driver_of("TypeScript SDK 2.4", "2026-07-28")
    await driver.prepare()
    async with served(server) as url:
        (said,) = await driver.run(Target(url), [ToolCall("charge", {"euros": 20})])
    assert (said.asked, said.data, said.error, charged) == ([], {"result": 20}, None, [20])
