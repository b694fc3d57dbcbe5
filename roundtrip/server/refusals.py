"""The one answer every bad token gets."""

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

__all__ = ["is_refusal", "refusal"]

_MESSAGE = "Invalid or expired requestState"
_DATA = {"reason": "invalid_request_state"}


def refusal() -> MCPError:
    """What a client is told of a bad token, whatever was wrong with it; the same as the SDK's boundary says."""
    # A reason on the wire would tell an attacker which check they had passed (S4).
    return MCPError(code=INVALID_PARAMS, message=_MESSAGE, data=dict(_DATA))


def is_refusal(error: MCPError) -> bool:
    """Whether an error is that answer."""
    return error.code == INVALID_PARAMS and error.message == _MESSAGE and error.data == _DATA
