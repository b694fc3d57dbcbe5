"""Use the private names of the SDK that only adapters need, all in this module; it rejects an SDK that has moved one.

`MCPServer._tool_manager`, `._prompt_manager` and `._resource_manager` have what was registered. `ToolManager._tools` is
where a tool goes that is not made of a function by the SDK.

`MCPServer._subscriptions` is the bus on which clients hear of changes, and `._custom_starlette_routes` are the author's
pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.tools import ToolManager
from mcp.server.mcpserver.utilities.logging import get_logger

from roundtrip.sdk import require_names

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server as LowLevelServer
    from mcp.server.mcpserver.tools.base import Tool
    from mcp.server.subscriptions import SubscriptionBus

require_names(
    {
        MCPServer: "_lowlevel_server _tool_manager _prompt_manager _resource_manager _subscriptions "
        "_custom_starlette_routes",
        ToolManager: "_tools",
    }
)

# The SDK's logger, with the SDK's message for the same case.
logger = get_logger("mcp.server.mcpserver.tools.tool_manager")


def low_level_of(server: MCPServer[Any]) -> LowLevelServer[Any]:
    """Return the low-level server inside of a server."""
    return server._lowlevel_server  # pyright: ignore[reportPrivateUsage]


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
