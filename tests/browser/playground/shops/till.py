"""A server that tests change."""

import os

from roundtrip import Context, Server
from roundtrip.ledger import MemoryLedger

server = Server("till", ledger=MemoryLedger())


@server.tool()
async def charge(ctx: Context) -> str:
    """Charge an amount."""
    amount = await ctx.ask("amount", "How much?", int)
    return f"Charged {amount}"


@server.tool()
def count(coins: int) -> str:
    """Count coins."""
    return f"{coins} coins"


@server.tool()
def refund() -> str:
    """Give it back."""
    return "refunded"


@server.tool(task=True)
async def charge_slowly(ctx: Context) -> str:
    """Charge an amount as a task."""
    return f"Charged {await ctx.ask('amount', 'How much?', int)}"


@server.tool(confirm="Close the till?", exactly_once=True)
def close() -> str:
    """Close the till."""
    return "closed"


@server.tool()
async def number(ctx: Context) -> str:
    """Return another number each time."""
    return f"{await ctx.ask('amount', 'How much?', int)} {os.urandom(8).hex()}"
