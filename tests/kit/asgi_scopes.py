"""HTTP request scopes for an ASGI application, like those from a local server."""

from collections.abc import Sequence
from typing import Any

from starlette.types import Scope

__all__ = ["scope_of"]


def scope_of(headers: Sequence[tuple[bytes, bytes]], *, verb: str = "POST", state: dict[str, Any]) -> Scope:
    """Return the scope for a request to `/mcp`."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": state,
    }
