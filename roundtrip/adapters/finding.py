"""Find roundtrip on a server of any class, and the low-level server inside of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from typing_extensions import TypeIs

from roundtrip.adapters.installation import Installation, installation_in
from roundtrip.adapters.sdk_names import low_level_of
from roundtrip.server.server import Server

if TYPE_CHECKING:
    from starlette.applications import Starlette

AttachedServer = Server[Any] | Installation[Any]
"""A server with roundtrip: one of roundtrip's own class, or the installation on a server of another class."""


class FastMcpServer(Protocol):
    """A FastMCP server; FastMCP need not be installed."""

    @property
    def name(self) -> str:
        """Return its name."""
        ...

    @property
    def http_app(self) -> Callable[..., Starlette]:
        """Return the method that makes the ASGI application which serves it."""
        ...


AnyServer = MCPServer[Any] | LowLevelServer[Any] | FastMcpServer
"""A server object of any class."""


def is_fastmcp(server: object) -> TypeIs[FastMcpServer]:
    """Return True for a server of FastMCP."""
    return isinstance(server, _fastmcp_classes())


def is_server(server: object) -> TypeIs[AnyServer]:
    """Return True for a server object of any class."""
    return isinstance(server, server_classes())


def server_classes() -> tuple[type[Any], ...]:
    """Return the classes of servers; FastMCP's only if it has been imported."""
    return MCPServer, LowLevelServer, *_fastmcp_classes()


def _fastmcp_classes() -> tuple[type[Any], ...]:
    # Without an import: the author of such a server has imported it.
    fastmcp: Any = sys.modules.get("fastmcp")
    return () if fastmcp is None else (fastmcp.FastMCP,)


def low_level(server: AnyServer) -> LowLevelServer[Any]:
    """Return the SDK's low-level server inside of a server."""
    if isinstance(server, MCPServer):
        return low_level_of(server)
    if isinstance(server, LowLevelServer):
        return server
    from roundtrip.adapters import fastmcp_names

    return fastmcp_names.low_level_of(cast("Any", server))


def attached(server: object) -> AttachedServer | None:
    """Return the part of a server that is roundtrip's: itself, or its installation; None if it has none."""
    if isinstance(server, Server | Installation):
        return cast("AttachedServer", server)
    return installation_in(low_level(server)) if is_server(server) else None
