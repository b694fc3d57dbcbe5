"""The FastMCP server of the attack on `roundtrip serve`."""

from typing import Any

from fastmcp import FastMCP

import roundtrip
from roundtrip.fastmcp import install
from tests.chaos.tasks.shop import KEY, TTL, Terms, order_of

__all__ = ["shop"]


def shop() -> FastMCP[Any]:
    """Return the server."""
    terms = Terms.of_process()
    mcp = FastMCP[Any]("shop")
    install(mcp, keys=[KEY], ledger=terms.ledger())
    mcp.tool(roundtrip.tool(task="required", task_ttl=TTL)(order_of(terms)))
    return mcp
