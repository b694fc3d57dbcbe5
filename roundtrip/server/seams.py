"""The private names of the SDK that roundtrip needs, all in this module; a test fails when the SDK moves one.

`MCPServer._tool_input_schema` is how the SDK finds a tool's schema to check `Mcp-Param-*` headers against, before any
middleware runs. roundtrip keeps its own registry of tools, and without this hook a mismatched header would pass.
"""

from typing import Any

from mcp.server import MCPServer
from mcp.server.lowlevel.server import LifespanResultT

__all__ = ["SchemaSource"]


class SchemaSource(MCPServer[LifespanResultT]):
    """An `MCPServer` that asks its subclass for a tool's schema."""

    def tool_schema(self, name: str) -> dict[str, Any] | None:
        """The input schema of a tool that may be called, or None."""
        raise NotImplementedError

    def _tool_input_schema(self, name: str) -> dict[str, Any] | None:
        return self.tool_schema(name)
