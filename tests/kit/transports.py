"""Serve a server in memory, or over HTTP with each combination of the SDK's options."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from roundtrip import Server
from roundtrip.testing import served
from roundtrip.testing.networks.fleet import Instance

__all__ = ["TRANSPORTS", "serve_over"]

TRANSPORTS: Final[dict[str, dict[str, bool] | None]] = {
    "memory": None,
    "http": {},
    "http stateless": {"stateless_http": True},
    "http json": {"json_response": True},
    "http stateless json": {"stateless_http": True, "json_response": True},
}
"""Transports by name, with their HTTP options."""


@asynccontextmanager
async def serve_over(transport: str, server: Server[Any]) -> AsyncGenerator[Instance]:
    """Serve over a transport, and yield what a client connects to."""
    options = TRANSPORTS[transport]
    if options is None:
        yield server
    else:
        async with served(server, **options) as url:
            yield url
