"""Room in a memory ledger: journals of intents grow, and no caller takes all of it."""

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


async def test_growing_journals_leave_room_for_other_callers() -> None:
    ledger = MemoryLedger(max_bytes=100_000)

    def store() -> Server:
        server = Server("store", keys=[KEY], ledger=ledger)

        @server.tool(once_per="{order}")
        async def book(order: int, ctx: Context) -> str:
            words = await ctx.ask("words", "Which words?", str)
            more = await ctx.ask("more", "More?", str)
            return f"{words}{more}"

        return server

    opened = [LegByLeg(store, principal="ann") for _ in range(20)]
    for number, legs in enumerate(opened):
        await legs.leg("book", {"order": number})
    refused = 0
    for number, legs in enumerate(opened):
        try:
            await legs.leg("book", {"order": number}, answers={"words": "x" * 10_000}, state=legs.token)
        except MCPError:
            refused += 1
    assert 0 < refused < len(opened)
    bob = LegByLeg(store, principal="bob")
    await bob.leg("book", {"order": 0})
    assert list(bob.questions) == ["words"]
