"""The check of `Mcp-Param-*` headers for tools with a gate, or with several versions.

The SDK makes it before there is a request whose client a gate could be asked for, or whose version is known. It must
not find such a tool then: that a header is refused tells that the tool exists, and another version may have others.
"""

from collections.abc import Mapping
from typing import Any, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import validate_mcp_param_headers
from mcp_types import Tool
from starlette.requests import Request

from roundtrip.revisions import is_retry_era
from roundtrip.server.requests import asking_request

__all__ = ["check_headers"]


def check_headers(tool: Tool) -> None:
    """Have the headers of the request agree with its arguments, where it calls this tool itself.

    Raises:
        MCPError: They do not, in the SDK's own words.
    """
    current = asking_request()
    if current is None or current.claimed:
        return
    context = current.context
    if context.method != "tools/call" or not is_retry_era(context.protocol_version):
        return
    request: object = context.request
    params: Mapping[str, Any] = context.params or {}
    arguments: object = params.get("arguments") or {}
    if not isinstance(request, Request) or params.get("name") != tool.name or not isinstance(arguments, Mapping):
        return
    headers = cast("Request[Any]", request).headers
    rejection = validate_mcp_param_headers(tool.input_schema, cast("Mapping[str, Any]", arguments), headers)
    if rejection is not None:
        raise MCPError(code=rejection.code, message=rejection.message, data=rejection.data)
