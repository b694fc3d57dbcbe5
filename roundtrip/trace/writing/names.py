"""Names shared with other programs: environment variables, and an OpenTelemetry attribute value."""

from typing import Final

TRACE_VARIABLE: Final = "ROUNDTRIP_TRACE"
REVEAL_VARIABLE: Final = "ROUNDTRIP_TRACE_REVEAL"
OPERATOR_LOG_VARIABLE: Final = "ROUNDTRIP_OPERATOR_LOG"

TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result with `isError`, the same as in the SDK's spans."""
