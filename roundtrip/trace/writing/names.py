"""Names that other programs use: environment variables, and an attribute of OpenTelemetry."""

from typing import Final

TRACE_VARIABLE: Final = "ROUNDTRIP_TRACE"
REVEAL_VARIABLE: Final = "ROUNDTRIP_TRACE_REVEAL"
OPERATOR_LOG_VARIABLE: Final = "ROUNDTRIP_OPERATOR_LOG"

TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result with `isError`, as the SDK's own spans have it."""
