"""Hostile requests that try to run an `exactly_once` tool twice."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from roundtrip.ledger import MemoryLedger
from roundtrip.testing import served
from tests.interaction.ledger.shops import Shop
from tests.kit.wire import Wire, wire

pytestmark = pytest.mark.anyio

TEA = {"what": "tea"}


@asynccontextmanager
async def gift_shop() -> AsyncGenerator[tuple[Wire, list[str]]]:
    """Make a shop that gives something once, without a question."""
    shop = Shop(MemoryLedger())

    async def give(what: str) -> str:
        shop.ran.append(what)
        return f"{what} no. {len(shop.ran)}"

    shop.add(give)
    async with served(shop(), stateless_http=True) as url, wire(url) as client:
        yield client, shop.ran


async def test_uri_beside_a_tool_name_does_not_bypass_the_ledger() -> None:
    async with gift_shop() as (client, ran):
        begun = await client.result("give", TEA, uri="elsewhere://")
        assert (begun["resultType"], ran) == ("input_required", [])
        for uri in ("elsewhere://", 1, None):
            ended = await client.result("give", TEA, requestState=begun["requestState"], uri=uri)
            assert ended["structuredContent"] == {"result": "tea no. 1"}
        assert ran == ["tea"]
