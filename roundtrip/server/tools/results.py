"""A tool's result as the protocol carries it: the SDK's conversion, with a short way for the commonest kind."""

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, InputRequiredResult, TextContent

__all__ = ["Converter", "converter_for"]

Converter = Callable[[Any], CallToolResult | InputRequiredResult]


def converter_for(metadata: FuncMetadata, returns: Any) -> Converter:
    """How what a tool's function returns becomes a result."""
    if not metadata.wrap_output or returns is not str:
        return metadata.convert_result

    def convert_text(value: Any) -> CallToolResult | InputRequiredResult:
        if type(value) is not str:
            return metadata.convert_result(value)
        # What the SDK makes of it by way of a model with the one field `result`.
        text = TextContent(type="text", text=value)
        return CallToolResult(content=[text], structured_content={"result": value})

    return convert_text
