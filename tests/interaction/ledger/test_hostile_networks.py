"""Tools that run once, on every network that the kit has."""

from typing import Annotated

import pytest

from roundtrip import Context, Resolve
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import User
from tests.interaction.ledger.shops import Shop, paid

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(hostile=True, without=["deploy"])]


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
