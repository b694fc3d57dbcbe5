"""Tell a client that the store of the server cannot be used."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError

from roundtrip.server.failures import SERVER_ERROR

__all__ = ["store_down"]


def store_down(message: str) -> MCPError:
    """Return the error for a client that may try again later, as for tools that run once and whose ledger is down."""
    return MCPError(code=SERVER_ERROR, message=f"{message}; try again later", data={"reason": "ledger_unavailable"})
