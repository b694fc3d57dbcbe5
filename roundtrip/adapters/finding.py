"""The roundtrip part of any server object, and the registered parts of the SDK's servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver.prompts import PromptManager
from mcp.server.mcpserver.resources import ResourceManager
from mcp.server.mcpserver.tools import ToolManager
from mcp.server.mcpserver.utilities.logging import get_logger
from mcp.server.subscriptions import InMemorySubscriptionBus
from typing_extensions import TypeIs

from roundtrip.adapters.installation import installation_in
from roundtrip.on_demand import load_on_use
from roundtrip.sdk import low_level_of, name_in, part_name
from roundtrip.server.attach import Attached
from roundtrip.server.server import Server

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool
    from mcp.server.subscriptions import SubscriptionBus
    from starlette.applications import Starlette

    from roundtrip.adapters import fastmcp_names

load_on_use(globals(), "roundtrip.adapters.fastmcp_names")

# The SDK's own logger, because `takes_tool` logs the SDK's message.
logger = get_logger("mcp.server.mcpserver.tools.tool_manager")


ManagerT = TypeVar("ManagerT", ToolManager, PromptManager, ResourceManager)


class FastMcpServer(Protocol):
    """FastMCP server, described without importing FastMCP."""

    @property
    def name(self) -> str:
        """Return the server's name."""
        ...

    @property
    def http_app(self) -> Callable[..., Starlette]:
        """Return the method that makes the server's ASGI application."""
        ...


AnyServer = MCPServer[Any] | LowLevelServer[Any] | FastMcpServer
"""Any server class that roundtrip supports."""


def is_fastmcp(server: object) -> TypeIs[FastMcpServer]:
    """Return True for a FastMCP server."""
    return isinstance(server, _fastmcp_classes())


def is_server(server: object) -> TypeIs[AnyServer]:
    """Return True for a server object of any supported class."""
    return isinstance(server, server_classes())


def server_classes() -> tuple[type[Any], ...]:
    """Return the supported server classes; FastMCP's class is included only if FastMCP has been imported."""
    return MCPServer, LowLevelServer, *_fastmcp_classes()


def _fastmcp_classes() -> tuple[type[Any], ...]:
    # Do not import FastMCP: if such a server exists, its author has imported FastMCP already.
    fastmcp: Any = sys.modules.get("fastmcp")
    return () if fastmcp is None else (fastmcp.FastMCP,)


def low_level(server: AnyServer) -> LowLevelServer[Any]:
    """Return the SDK's low-level server inside a server."""
    if isinstance(server, MCPServer):
        return low_level_of(server)
    if isinstance(server, LowLevelServer):
        return server
    return fastmcp_names.low_level_of(cast("Any", server))


def attached(server: object) -> Attached | None:
    """Return a server's roundtrip parts: the internals of a `Server`, an installation, or None."""
    if isinstance(server, Attached):
        return server
    if isinstance(server, Server):
        return cast("Server[Any]", server).internals
    return installation_in(low_level(server)) if is_server(server) else None


async def signal(server: object, call_id: str, name: str, payload: Any = None) -> bool:
    """Send a signal to a call's task; see `roundtrip.Server.signal`.

    Args:
        server: The server, on which roundtrip is installed.
        call_id: The call's id, from `ctx.call.id` or a ticket.
        name: The signal's name.
        payload: A JSON value.

    Returns:
        False if the call has no task, or the store no longer has the task.

    Raises:
        TypeError: roundtrip is not installed on the server.
        LedgerDown: The task store is unavailable.
        ValueError: The payload is not JSON.
        RuntimeError: The server has no tool that runs as a task.
    """
    parts = attached(server)
    if parts is None:
        raise TypeError(f"signal() must be given a server with roundtrip, got {type(server).__name__}; call install()")
    return await parts.signal(call_id, name, payload)


def manager_of(server: MCPServer[Any], kind: type[ManagerT]) -> ManagerT:
    """Return the object in which a server keeps its tools, prompts or resources."""
    return getattr(server, part_name(kind))


def functions_of(server: MCPServer[Any]) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield each registered function with its kind and name."""
    for tool in tools_of(server):
        yield "tool", tool.name, tool.fn
    for prompt in manager_of(server, PromptManager).list_prompts():
        yield "prompt", prompt.name, prompt.fn
    for template in manager_of(server, ResourceManager).list_templates():
        yield "resource", template.uri_template, template.fn


def takes_tool(server: MCPServer[Any], name: str) -> bool:
    """Return True if no tool has this name yet. Otherwise, log a warning if the server's settings ask for one."""
    manager = manager_of(server, ToolManager)
    if manager.get_tool(name) is None:
        return True
    if manager.warn_on_duplicate_tools:
        logger.warning("Tool already exists: %s", name)
    return False


def tools_of(server: MCPServer[Any]) -> list[Tool]:
    """Return the registered tool objects."""
    return manager_of(server, ToolManager).list_tools()


def tool_of(server: MCPServer[Any], name: str) -> Tool | None:
    """Return a registered tool object, or None."""
    return manager_of(server, ToolManager).get_tool(name)


def put_tool(server: MCPServer[Any], tool: Tool) -> None:
    """Register a tool object, which replaces any tool with the same name."""
    getattr(manager_of(server, ToolManager), _tools_name())[tool.name] = tool


def bus_of(server: MCPServer[Any]) -> SubscriptionBus | None:
    """Return the bus that announces changes to clients."""
    return getattr(server, part_name(InMemorySubscriptionBus))


@cache
def _tools_name() -> str:
    """Return the name of the attribute in which the SDK's manager keeps its tools, as a new manager shows."""
    return name_in(ToolManager(tools=[]), lambda value: isinstance(value, dict))
