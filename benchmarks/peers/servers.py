"""Servers for the three libraries, all with one key, and the guard pattern with which FastMCP's tools ask."""

from collections.abc import Mapping
from typing import Any, Final

from fastmcp import FastMCP
from mcp.server import MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from benchmarks.peers.clients import KEY
from roundtrip import Server

__all__ = ["NAME_FORM", "answer_to", "asking", "fast", "ours", "theirs"]

NAME_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


def ours(**options: Any) -> Server[Any]:
    """Create a roundtrip server that records no trace."""
    return Server[Any]("peer", keys=[KEY], trace=False, **options)


def theirs() -> MCPServer[Any]:
    """Create an SDK server."""
    return MCPServer[Any]("peer", request_state_security=RequestStateSecurity(keys=[KEY]))


def fast(**options: Any) -> FastMCP[Any]:
    """Create a FastMCP server."""
    return FastMCP[Any]("peer", request_state_security=RequestStateSecurity(keys=[KEY]), **options)


def asking(key: str, message: str, *, state: str | None = None) -> InputRequiredResult:
    """Return what a FastMCP guard returns to ask for a name."""
    params = ElicitRequestFormParams(message=message, requested_schema=NAME_FORM)
    return InputRequiredResult(input_requests={key: ElicitRequest(params=params)}, request_state=state or key)


def answer_to(ctx: Any, key: str) -> Any:
    """Return the accepted name, or None if a question has no such answer."""
    answers: Mapping[str, Any] = ctx.input_responses or {}
    given = answers.get(key)
    if not isinstance(given, ElicitResult) or given.action != "accept" or given.content is None:
        return None
    return given.content.get("name")
