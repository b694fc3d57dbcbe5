"""Say of each result of a tool with versions that its value is wrapped; a client has the schema of one version only."""

from __future__ import annotations

from typing import Any, cast

from mcp_types import CallToolResult, InputRequiredResult

from roundtrip.server.tools.results import Converter

__all__ = ["marked"]


def marked(convert: Converter) -> Converter:
    """Return a converter whose results say, in FastMCP's metadata, that the structured content wraps the value."""

    def convert_and_mark(value: Any) -> CallToolResult | InputRequiredResult:
        result = convert(value)
        if not isinstance(result, CallToolResult) or result.structured_content is None:
            return result
        meta = result.meta or {}
        given = meta.get("fastmcp")
        kept = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        return result.model_copy(update={"meta": {**meta, "fastmcp": {"wrap_result": True, **kept}}})

    return convert_and_mark
