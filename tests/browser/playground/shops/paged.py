"""A server with question pages, and questions that a model may answer."""

import os

from roundtrip import Context, Pages, Server
from roundtrip.ledger import MemoryLedger

server = Server(
    "paged",
    ledger=MemoryLedger(),
    pages=Pages(base_url=f"http://127.0.0.1:{os.environ['PAGED_PORT']}"),
    channels=["form", "url", "model"],
)


@server.tool()
async def order(ctx: Context) -> str:
    """Order copies."""
    return f"Ordered {await ctx.ask('copies', 'How many?', int)}"


@server.tool()
async def pick(ctx: Context) -> str:
    """Pick a color, which a model may do."""
    return f"Picked {await ctx.ask('color', 'Which color?', str, answered_by='anyone')}"


@server.tool()
async def count(ctx: Context) -> str:
    """Report progress often."""
    for number in range(2000):
        await ctx.report_progress(number, 2000, "x" * 3000)
    return "counted"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(lambda: "new", name="newcomer")
    return "grown"
