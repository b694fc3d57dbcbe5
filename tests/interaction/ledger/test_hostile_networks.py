"""Tools that run once, on every network that the kit has."""

import pytest

from roundtrip import Context
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import User
from tests.interaction.ledger.shops import Shop

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(hostile=True, without=["deploy"])]


async def test_a_tool_with_a_question() -> None:
    shop = Shop(MemoryLedger())
    call = await User(shop, {"paid": True}).call("buy", what="tea")
    assert call.value.endswith(", paid")


async def test_a_tool_that_asks_nothing() -> None:
    shop = Shop(MemoryLedger())

    async def give(what: str) -> str:
        shop.ran.append(what)
        return what

    shop.add(give)
    call = await User(shop).call("give", what="tea")
    assert (call.value, call.questions) == ("tea", [])


async def test_a_body_that_asks() -> None:
    shop = Shop(MemoryLedger())

    async def order(ctx: Context) -> str:
        size = await ctx.ask("size", "How many?", int)
        agreed = await ctx.ask("agreed", f"{size}?", bool)
        shop.ran.append("order")
        return f"{size} {agreed}"

    shop.add(order)
    call = await User(shop, {"size": 3, "agreed": True}).call("order")
    assert call.value == "3 True"
