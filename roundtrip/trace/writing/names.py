"""Names that other programs use: environment variables, OpenTelemetry spans, span events and attributes."""

from typing import Final

TRACE_VARIABLE: Final = "ROUNDTRIP_TRACE"
REVEAL_VARIABLE: Final = "ROUNDTRIP_TRACE_REVEAL"
OPERATOR_LOG_VARIABLE: Final = "ROUNDTRIP_OPERATOR_LOG"

SCOPE: Final = "roundtrip"
"""The instrumentation scope."""

# Spans; the name of the tool follows.
LEG_SPAN: Final = "roundtrip.leg"
REJECTED_SPAN: Final = "roundtrip.rejected"

# Events of a leg's span.
ASKED: Final = "roundtrip.asked"
"""One question went out."""
ANSWERED: Final = "roundtrip.answered"

# Attributes.
CALL: Final = "roundtrip.call"
LEG: Final = "roundtrip.leg"
ROUND: Final = "roundtrip.round"
STATE: Final = "roundtrip.state"
TOOL: Final = "roundtrip.tool"
ERA: Final = "roundtrip.era"
BUILD: Final = "roundtrip.build"
PENDING: Final = "roundtrip.pending"
"""The names of the questions that the call waits for."""
REASON: Final = "roundtrip.reason"
KEY: Final = "roundtrip.key"
KEYS: Final = "roundtrip.keys"
ATTEMPT: Final = "roundtrip.attempt"
WAITED: Final = "roundtrip.waited"
"""Seconds from the questions to their answers."""
BODIES: Final = "roundtrip.bodies"
WITHIN: Final = "roundtrip.within"
TAKES_OVER: Final = "roundtrip.takes_over"
TOKEN_IN: Final = "roundtrip.token.received_bytes"  # noqa: S105 - a size
TOKEN_OUT: Final = "roundtrip.token.sent_bytes"  # noqa: S105 - a size

# Attributes of OpenTelemetry's own conventions.
METHOD: Final = "mcp.method.name"
PROTOCOL: Final = "mcp.protocol.version"
ERROR_TYPE: Final = "error.type"

TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result with `isError`, as the SDK's own spans have it."""
