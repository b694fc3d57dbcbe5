"""Replies to `tools/call`, in the retry era's wire format."""

import logging
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult, TextContent
from mcp_types.methods import serialize_server_result
from pydantic import ValidationError

_sdk_logger = logging.getLogger("mcp.server.mcpserver.server")
_METHOD: Final = "tools/call"


def text_result(text: str, *, is_error: bool = False) -> CallToolResult:
    """Return a result with one text block."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def result_of_reply(reply: dict[str, Any]) -> CallToolResult | InputRequiredResult:
    """Return the SDK model for a stored call's reply."""
    kind = InputRequiredResult if reply.get("resultType") == "input_required" else CallToolResult
    return kind.model_validate(reply)


def written(result: CallToolResult | InputRequiredResult, revision: str) -> dict[str, Any]:
    """Return a result in the retry era's wire format.

    Raises:
        MCPError: The result is invalid.
    """
    if type(result) is CallToolResult and result.meta is None and len(result.content) == 1:
        (block,) = result.content
        if type(block) is TextContent and block.annotations is None and block.meta is None:
            written: dict[str, Any] = {
                "content": [{"text": block.text, "type": "text"}],
                "isError": result.is_error,
                "resultType": "complete",
            }
            if result.structured_content is not None:
                written["structuredContent"] = result.structured_content
            return written
    try:
        data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return serialize_server_result(_METHOD, revision, data)
    except ValidationError:
        # Log the SDK's message: pydantic's message would repeat the result.
        _sdk_logger.exception("handler for %r returned an invalid result", _METHOD)
        raise MCPError(code=INTERNAL_ERROR, message="Handler returned an invalid result") from None
