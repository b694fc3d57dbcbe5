"""What spans, their events and their attributes are called, in what is exported and in what is sent live."""

from typing import Final

__all__ = [
    "ANSWERED",
    "ASKED",
    "ATTEMPT",
    "BODIES",
    "BUILD",
    "CALL",
    "ERA",
    "ERROR_TYPE",
    "EVENT",
    "INSTANCE",
    "KEY",
    "KEYS",
    "LEG",
    "LEG_SPAN",
    "METHOD",
    "MOVED",
    "PENDING",
    "PROTOCOL",
    "REASON",
    "REFUSED_SPAN",
    "ROUND",
    "SCOPE",
    "STATE",
    "TOKEN_IN",
    "TOKEN_OUT",
    "TOOL",
    "TOOL_ERROR",
    "WAITED",
    "WITHIN",
]

SCOPE: Final = "roundtrip"
"""The instrumentation scope."""

# Spans, each followed by the name of the tool.
LEG_SPAN: Final = "roundtrip.leg"
REFUSED_SPAN: Final = "roundtrip.refused"

# Events of a leg's span.
ASKED: Final = "roundtrip.asked"
"""One question went out."""
ANSWERED: Final = "roundtrip.answered"
MOVED: Final = "roundtrip.moved"
"""The machine took a step."""

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
EVENT: Final = "roundtrip.event"
WAITED: Final = "roundtrip.waited"
"""Seconds for which the answers were waited for."""
BODIES: Final = "roundtrip.bodies"
WITHIN: Final = "roundtrip.within"
TOKEN_IN: Final = "roundtrip.token.received_bytes"  # noqa: S105 - a size
TOKEN_OUT: Final = "roundtrip.token.sent_bytes"  # noqa: S105 - a size

# Attributes that others gave their names.
METHOD: Final = "mcp.method.name"
PROTOCOL: Final = "mcp.protocol.version"
ERROR_TYPE: Final = "error.type"
INSTANCE: Final = "service.instance.id"

TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result that says it is an error, as the SDK's own spans have it."""
