"""The one reply to every token that is not good."""

from typing import Final

from mcp_types import ErrorData

__all__ = ["FROZEN"]

FROZEN: Final = ErrorData(
    code=-32602, message="Invalid or expired requestState", data={"reason": "invalid_request_state"}
)
