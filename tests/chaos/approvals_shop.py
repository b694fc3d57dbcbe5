"""The server of the attack on approvals, as each of its instances runs it."""

import os
from typing import Any, Final

from roundtrip import Approvals, Context, Pages, Server
from roundtrip.ledger import lease
from tests.kit.approving import BASE, GROUPS, KEY, reader, user_of
from tests.kit.stores import ledger_at

__all__ = ["PLACE", "shop"]

PLACE: Final = "CHAOS_APPROVALS"


def shop() -> Server[Any]:
    lease.LEASE_SECONDS = 2.0
    server = Server[Any](
        "shop",
        keys=[KEY],
        principal=user_of,
        pages=Pages(base_url=BASE, authenticate=reader, wait=0),
        approvals=Approvals(groups=GROUPS, on_pending=lambda approval: None),
        ledger=ledger_at(os.environ[PLACE]),
    )

    @server.tool(task="required")
    async def sign(number: int, ctx: Context) -> str:
        """Sign a contract."""
        first = await ctx.approve("first", f"Sign {number}?", by="finance", remind=1)
        return f"{number} was signed by {first.who}: {first.reason}"

    return server
