"""The result of a call and the tools of a server, as text for people to read."""

import json
from collections.abc import Sequence
from typing import Any, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from roundtrip.client.arguments import kind_of, parameters_of, required_by
from roundtrip.safe_text import printable

__all__ = ["text_of_result", "text_of_tools"]


def text_of_result(result: CallToolResult) -> str:
    """Return the text of a result, else its structured content, with one line for each other block."""
    shown = "\n".join(_block_text(block) for block in result.content)
    if result.structured_content is not None and not any(isinstance(block, TextContent) for block in result.content):
        structured = printable(json.dumps(result.structured_content, indent=2, ensure_ascii=False), keep_newlines=True)
        shown = f"{shown}\n{structured}" if shown else structured
    return shown


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return _with_tabs(block.text)
        case ResourceLink():
            return f"[link to {printable(str(block.uri))}]"
        case EmbeddedResource():
            return _resource_text(block.resource)
        case ImageContent() | AudioContent():
            return f"[{block.type}, {printable(block.mime_type)}, {_size_of(block.data)}]"


def _resource_text(resource: TextResourceContents | BlobResourceContents) -> str:
    name = f"resource {printable(str(resource.uri))}"
    if isinstance(resource, TextResourceContents):
        return f"[{name}]\n{_with_tabs(resource.text)}"
    return f"[{name}, {_size_of(resource.blob)}]"


def _with_tabs(text: str) -> str:
    """Return printable text that keeps its tabs, which are layout on standard output."""
    return "\t".join(printable(part, keep_newlines=True) for part in text.split("\t"))


def _size_of(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64.count('=', -2)} bytes"


def text_of_tools(tools: Sequence[Tool]) -> str:
    """List tools with their parameters."""
    if not tools:
        return "The server has no tools."
    return "\n\n".join(_tool_text(tool) for tool in tools)


def _tool_text(tool: Tool) -> str:
    lines = [printable(tool.name)]
    if tool.description:
        lines += [f"  {printable(line)}" for line in tool.description.strip().splitlines()]
    required = required_by(tool)
    for name, shape in parameters_of(tool).items():
        about = cast("dict[str, Any]", shape).get("description") if isinstance(shape, dict) else None
        need = "" if name in required else ", optional"
        shown = f": {printable(about)}" if isinstance(about, str) else ""
        lines.append(f"    {printable(name)} ({printable(kind_of(tool, name))}{need}){shown}")
    return "\n".join(lines)
