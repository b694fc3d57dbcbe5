"""roundtrip: MCP servers whose tools can ask, and resume on any instance."""

from typing import TYPE_CHECKING

from roundtrip.on_demand import on_demand

if TYPE_CHECKING:
    from mcp.server.mcpserver.exceptions import ToolError

    from roundtrip.asks.markers import Elicit, ElicitUrl, ListRoots, Sample
    from roundtrip.asks.outcomes import (
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
    )
    from roundtrip.asks.samples import Sampled
    from roundtrip.errors import InvalidSignature, RoundtripError
    from roundtrip.graph.markers import Depends, Resolve
    from roundtrip.machine.call import Step
    from roundtrip.machine.table import Event, State
    from roundtrip.recording.recorder import Recorder
    from roundtrip.recording.telemetry import Telemetry
    from roundtrip.server.content import Audio, File, Image, ToolResult
    from roundtrip.server.context import Context
    from roundtrip.server.current import get_access_token, get_context, get_http_headers, get_request
    from roundtrip.server.server import Server
    from roundtrip.server.tools.options import tool
    from roundtrip.tickets import Ticket

__all__ = [
    "AcceptedElicitation",
    "Audio",
    "CancelledElicitation",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "Elicit",
    "ElicitUrl",
    "ElicitationResult",
    "Event",
    "File",
    "Image",
    "InvalidSignature",
    "ListRoots",
    "Recorder",
    "Resolve",
    "RoundtripError",
    "Sample",
    "Sampled",
    "Server",
    "State",
    "Step",
    "Telemetry",
    "Ticket",
    "ToolError",
    "ToolResult",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_request",
    "tool",
]

if not TYPE_CHECKING:
    # The command line shows its help without the SDK, and a server does not pay for what it does not use.
    __getattr__ = on_demand(
        __name__,
        {
            "mcp.server.mcpserver.exceptions": ["ToolError"],
            "roundtrip.asks.markers": ["Elicit", "ElicitUrl", "ListRoots", "Sample"],
            "roundtrip.asks.outcomes": [
                "AcceptedElicitation",
                "CancelledElicitation",
                "DeclinedElicitation",
                "ElicitationResult",
            ],
            "roundtrip.asks.samples": ["Sampled"],
            "roundtrip.errors": ["InvalidSignature", "RoundtripError"],
            "roundtrip.graph.markers": ["Depends", "Resolve"],
            "roundtrip.machine.call": ["Step"],
            "roundtrip.machine.table": ["Event", "State"],
            "roundtrip.recording.recorder": ["Recorder"],
            "roundtrip.recording.telemetry": ["Telemetry"],
            "roundtrip.server.content": ["Audio", "File", "Image", "ToolResult"],
            "roundtrip.server.context": ["Context"],
            "roundtrip.server.current": ["get_access_token", "get_context", "get_http_headers", "get_request"],
            "roundtrip.server.server": ["Server"],
            "roundtrip.server.tools.options": ["tool"],
            "roundtrip.tickets": ["Ticket"],
        },
        modules=["errors", "ledger"],
    )

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
