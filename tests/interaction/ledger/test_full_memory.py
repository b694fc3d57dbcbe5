"""A ledger in memory that clients fill: nothing new begins, and finished calls stay finished."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip.ledger import Ledger, LedgerDown, MemoryLedger
from roundtrip.system import System
from roundtrip.testing import Clock, LegByLeg, User
from tests.interaction.ledger.holders import EpochKeeper
from tests.interaction.ledger.shops import Shop, asked_to_buy, text_of

pytestmark = pytest.mark.anyio

ROOM = 64 * 1024
TEA: Any = {"what": "tea"}
YES: Any = {"paid": True}


async def print_out(what: str) -> str:
    return what * 10_000


async def take_all(ledger: Ledger | EpochKeeper, account: str | None = None) -> int:
    """Make claims until the ledger is full; without an account, as all of them together."""
    for number in range(100):
        try:
            await ledger.claim(f"{account}-{number}", "a", holder="one", lease=3600, keep=3600, account=account)
        except LedgerDown:
            return number
    return 100


async def filled(shop: Shop, *, principal: str | None = None) -> None:
    """Let a client make calls until its share is full."""

    async def make_calls() -> None:
        for _ in range(20):
            legs = LegByLeg(shop, principal=principal)
            await legs.leg("print_out", {"what": "x"})
            await legs.leg("print_out", {"what": "x"}, state=legs.token)

    with pytest.raises(MCPError, match="was not run"):
        await make_calls()


async def test_one_tool_cannot_use_the_share_of_others(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(MemoryLedger(max_bytes=ROOM))
    shop.add(print_out)
    await filled(shop)
    assert "a caller has used its share of the memory ledger" in caplog.text
    assert (await User(shop, YES).call("buy", TEA)).value == "tea no. 1, paid"


async def test_one_caller_cannot_use_the_share_of_others() -> None:
    shop = Shop(MemoryLedger(max_bytes=ROOM))
    shop.add(print_out)
    await filled(shop, principal="mallory")
    for principal, tool, given in (("mallory", "buy", YES), ("alice", "buy", YES), ("bob", "print_out", None)):
        legs = LegByLeg(shop, principal=principal)
        await legs.leg(tool, TEA)
        if principal == "mallory":
            with pytest.raises(MCPError, match="was not run"):
                await legs.leg(tool, TEA, answers=given, state=legs.token)
        else:
            await legs.leg(tool, TEA, answers=given, state=legs.token)
    assert shop.ran == ["tea"]


async def test_many_greedy_callers_leave_room_for_another() -> None:
    ledger = EpochKeeper(MemoryLedger(max_bytes=ROOM))
    assert [await take_all(ledger, account) for account in "abc"] == [32, 16, 8]
    await ledger.claim("another", "a", holder="one", lease=3600, keep=3600, account="d")


async def test_full_ledger_starts_nothing_and_still_reports_results() -> None:
    clock = Clock()
    shop = Shop(MemoryLedger(max_bytes=ROOM, system=System(time=clock)))
    legs = await asked_to_buy(shop)
    bought = text_of(await legs.leg("buy", TEA, answers=YES, state=legs.token))
    await take_all(shop.ledger)
    assert text_of(await legs.leg("buy", TEA, answers=YES, state=legs.token)) == bought

    other = await asked_to_buy(shop)
    with pytest.raises(MCPError) as refused:
        await other.leg("buy", TEA, answers=YES, state=other.token)
    assert refused.value.error.data == {"reason": "ledger_unavailable", "tool": "buy"}
    assert shop.ran == ["tea"]

    clock.advance(2 * 3600)
    assert text_of(await other.leg("buy", TEA, answers=YES, state=other.token)) == "tea no. 2, paid"


async def test_notes_and_releases_count_while_they_exist() -> None:
    clock = Clock()
    ledger = EpochKeeper(MemoryLedger(max_bytes=ROOM, system=System(time=clock)))
    times: Any = {"lease": 10.0, "keep": 60.0}
    for _ in range(100):
        await ledger.claim("call", "a", holder="one", **times)
        await ledger.release("call", holder="one")
    await ledger.claim("call", "a", holder="one", **times)
    for _ in range(100):
        await ledger.note("call", "step", "x" * 1000, holder="one")
    await ledger.claim("another", "a", holder="one", **times)
    await ledger.note("call", "other step", "x" * ROOM, holder="one")
    with pytest.raises(LedgerDown, match="is full"):
        await ledger.claim("a third", "a", holder="one", **times)
    clock.advance(100)
    await ledger.claim("a third", "a", holder="one", **times)
