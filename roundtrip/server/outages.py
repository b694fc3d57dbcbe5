"""Tell a client that the store of the server cannot be used."""

from __future__ import annotations

from typing import Final

from mcp.shared.exceptions import MCPError

__all__ = ["store_down"]

_SERVER_ERROR: Final = -32000
"""As for tools that run once, whose ledger is down."""


def store_down(message: str) -> MCPError:
    """Return the error for a client that may try again later."""
    return MCPError(code=_SERVER_ERROR, message=f"{message}; try again later", data={"reason": "ledger_unavailable"})
