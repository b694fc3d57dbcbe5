"""A server that tests change."""

from roundtrip import Context, Server

server = Server("till")


@server.tool()
async def charge(ctx: Context) -> str:
    """Charge an amount."""
    amount = await ctx.ask("amount", "How much?", int)
    return f"Charged {amount}"


@server.tool()
def refund() -> str:
    """Give it back."""
    return "refunded"
