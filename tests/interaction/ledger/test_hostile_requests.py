"""Hostile requests and networks, which try to run an `exactly_once` tool twice."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest

from roundtrip import Context, Resolve
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import User, served
from tests.interaction.ledger.shops import Shop, paid
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


@pytest.mark.roundtrip(hostile=True, without=["deploy"])
async def test_a_tool_whose_resolver_and_body_ask() -> None:
    shop = Shop(MemoryLedger())

    async def order(what: str, paid: Annotated[bool, Resolve(paid)], ctx: Context) -> str:
        size = await ctx.ask("size", "How many?", int)
        agreed = await ctx.ask("agreed", f"{size}?", bool)
        shop.ran.append("order")
        return f"{size} {agreed} {paid}"

    shop.add(order)
    call = await User(shop, {"size": 3, "agreed": True, "paid": True}).call("order", what="tea")
    assert call.value == "3 True True"
