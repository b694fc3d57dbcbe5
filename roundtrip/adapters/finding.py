"""Find roundtrip on a server of any class, and the parts of the SDK's own classes, by their private names.

`MCPServer._tool_manager`, `._prompt_manager` and `._resource_manager` have what was registered. `ToolManager._tools` is
where a tool goes that is not made of a function by the SDK.

`MCPServer._subscriptions` is the bus on which clients hear of changes, and `._custom_starlette_routes` are the author's
pages. No other module of the adapters uses private names of the SDK; this one rejects an SDK that has moved one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver.tools import ToolManager
from mcp.server.mcpserver.utilities.logging import get_logger
from typing_extensions import TypeIs

from roundtrip.adapters.installation import Installation, installation_in
from roundtrip.on_demand import load_on_use
from roundtrip.sdk import require_names
from roundtrip.server.server import Server

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool
    from mcp.server.subscriptions import SubscriptionBus
    from starlette.applications import Starlette

    from roundtrip.adapters import fastmcp_names
else:
    load_on_use(globals(), "roundtrip.adapters.fastmcp_names")

require_names(
    {
        MCPServer: "_lowlevel_server _tool_manager _prompt_manager _resource_manager _subscriptions "
        "_custom_starlette_routes",
        ToolManager: "_tools",
    }
)

# The SDK's logger, with the SDK's message for the same case.
logger = get_logger("mcp.server.mcpserver.tools.tool_manager")


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
        return server._lowlevel_server  # pyright: ignore[reportPrivateUsage]
    if isinstance(server, LowLevelServer):
        return server
    return fastmcp_names.low_level_of(cast("Any", server))


def attached(server: object) -> AttachedServer | None:
    """Return the part of a server that is roundtrip's: itself, or its installation; None if it has none."""
    if isinstance(server, Server | Installation):
        return cast("AttachedServer", server)
    return installation_in(low_level(server)) if is_server(server) else None


def functions_of(server: MCPServer[Any]) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield the registered functions, with their kinds and names."""
    for tool in server._tool_manager.list_tools():  # pyright: ignore[reportPrivateUsage]
        yield "tool", tool.name, tool.fn
    for prompt in server._prompt_manager.list_prompts():  # pyright: ignore[reportPrivateUsage]
        yield "prompt", prompt.name, prompt.fn
    for template in server._resource_manager.list_templates():  # pyright: ignore[reportPrivateUsage]
        yield "resource", template.uri_template, template.fn


def takes_tool(server: MCPServer[Any], name: str) -> bool:
    """Return True if a tool of this name can be registered; a second one is ignored, as by the SDK."""
    manager = server._tool_manager  # pyright: ignore[reportPrivateUsage]
    if manager.get_tool(name) is None:
        return True
    if manager.warn_on_duplicate_tools:
        logger.warning("Tool already exists: %s", name)
    return False


def put_tool(server: MCPServer[Any], tool: Tool) -> None:
    """Register a tool object."""
    server._tool_manager._tools[tool.name] = tool  # pyright: ignore[reportPrivateUsage]


def bus_of(server: MCPServer[Any]) -> SubscriptionBus | None:
    """Return the bus on which clients hear of changes."""
    return server._subscriptions  # pyright: ignore[reportPrivateUsage]


def routes_of(server: MCPServer[Any]) -> list[Any]:
    """Return the pages beside MCP that its author added."""
    return list(server._custom_starlette_routes)  # pyright: ignore[reportPrivateUsage]
