"""Servers of the SDK's own classes that have the same tools."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer

from roundtrip.install import bind, install
from roundtrip.testing.networks.fleet import KEYS

__all__ = ["each_class", "high_level", "low_level"]


def high_level(*tools: Callable[..., Any], keys: Any = KEYS[:1], **options: Any) -> MCPServer[Any]:
    server = MCPServer[Any]("cinema")
    install(server, keys=keys, **options)
    for tool in tools:
        server.add_tool(tool)
    return server


def low_level(*tools: Callable[..., Any], keys: Any = KEYS[:1], **options: Any) -> LowLevelServer[Any]:
    bound = bind(*tools)
    server = LowLevelServer[Any]("cinema", on_list_tools=bound.list_tools, on_call_tool=bound)
    install(server, keys=keys, **options)
    return server


each_class = pytest.mark.parametrize("make", [high_level, low_level], ids=["MCPServer", "low-level"])
