"""Failures of tools that run once: kept if the body ended, and logged in full once."""

import logging
from typing import Any

import pytest
from mcp_types import CreateMessageResult, TextContent

from roundtrip import Context, ElicitUrl
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of

pytestmark = pytest.mark.anyio

WRONG_KIND = CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")


@pytest.fixture
def shop() -> Shop:
    return Shop(MemoryLedger())


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


async def test_a_recalled_crash_is_logged_in_one_line(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def give() -> str:
        raise ValueError("dropped")

    shop.add(give)
    legs = LegByLeg(shop)
    await legs.leg("give")
    caplog.set_level(logging.INFO, logger="mcp.server.mcpserver.server")
    told = [text_of(await legs.leg("give", state=legs.token)) for _ in range(4)]
    assert told == ["Error executing tool give: dropped"] * 4
    assert errors_in(caplog) == ["Tool 'give' raised an unexpected exception"]
    again = [record.getMessage() for record in caplog.records if "recorded error" in record.getMessage()]
    assert again == ["Tool 'give' returned the recorded error of its body again"] * 3


@pytest.mark.parametrize("asks", ["form", "page"])
async def test_answer_of_another_kind_ends_no_call_and_logs_nothing(
    shop: Shop, asks: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def done() -> bool:
        return True

    async def order(ctx: Context[Any, Any]) -> str:
        if asks == "form":
            await ctx.ask("sure", "Sure?", bool)
        else:
            await ctx.ask("sure", ElicitUrl("Sign in", "https://example.com/in", done=done))
        shop.ran.append("order")
        return "ordered"

    shop.add(order)
    legs = LegByLeg(shop)
    await legs.leg("order")
    await legs.leg("order", state=legs.token)
    asked = legs.token
    token = asked
    for _ in range(5):
        await legs.leg("order", answers={"sure": WRONG_KIND}, state=token)
        token = legs.token
    right: Any = True if asks == "form" else {}
    ended = await legs.leg("order", answers={"sure": right}, state=asked)
    again = await legs.leg("order", answers={"sure": right}, state=asked)
    assert [text_of(ended), text_of(again), shop.ran] == ["ordered", "ordered", ["order"]]
    assert errors_in(caplog) == []
