"""roundtrip: MCP servers whose tools can ask questions, and resume on any instance."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp.server.mcpserver.exceptions import ToolError

    from roundtrip.approvals.markers import Approval, Approvals, Approve, PendingApproval
    from roundtrip.docket.engine import DocketEngine
    from roundtrip.errors import InvalidSignature, RoundtripError
    from roundtrip.machine.call import Transition
    from roundtrip.machine.table import Event, State
    from roundtrip.pages.settings import Pages
    from roundtrip.questions.markers import Elicit, ElicitUrl, ListRoots, Sample
    from roundtrip.questions.outcomes import (
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
    )
    from roundtrip.questions.samples import Sampled
    from roundtrip.resolvers.markers import Depends, Resolve
    from roundtrip.server.context import Context, get_access_token, get_context, get_http_headers, get_request
    from roundtrip.server.server import Server
    from roundtrip.tokens.tickets import Ticket
    from roundtrip.tools.content import ToolResult
    from roundtrip.tools.media import Audio, File, Image
    from roundtrip.tools.options import from_meta, tool
    from roundtrip.tools.promises import after
    from roundtrip.trace.writing.recorder import Recorder
    from roundtrip.trace.writing.telemetry import Telemetry

__all__ = [
    "AcceptedElicitation",
    "Approval",
    "Approvals",
    "Approve",
    "Audio",
    "CancelledElicitation",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "DocketEngine",
    "Elicit",
    "ElicitUrl",
    "ElicitationResult",
    "Event",
    "File",
    "Image",
    "InvalidSignature",
    "ListRoots",
    "Pages",
    "PendingApproval",
    "Recorder",
    "Resolve",
    "RoundtripError",
    "Sample",
    "Sampled",
    "Server",
    "State",
    "Telemetry",
    "Ticket",
    "ToolError",
    "ToolResult",
    "Transition",
    "after",
    "from_meta",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_request",
    "tool",
]

if not TYPE_CHECKING:
    # `import *` must work even if the extra is not installed.
    __all__ = [name for name in __all__ if name != "DocketEngine" or find_spec("docket") is not None]
    # Names are imported on first use, so that the command line can show its help without the SDK, and a server loads
    # only what it uses.
    _HOMES: Final = {
        "mcp.server.mcpserver.exceptions": ["ToolError"],
        "roundtrip.approvals.markers": ["Approval", "Approvals", "Approve", "PendingApproval"],
        "roundtrip.questions.markers": ["Elicit", "ElicitUrl", "ListRoots", "Sample"],
        "roundtrip.questions.outcomes": [
            "AcceptedElicitation",
            "CancelledElicitation",
            "DeclinedElicitation",
            "ElicitationResult",
        ],
        "roundtrip.questions.samples": ["Sampled"],
        "roundtrip.errors": ["InvalidSignature", "RoundtripError"],
        "roundtrip.resolvers.markers": ["Depends", "Resolve"],
        "roundtrip.machine.call": ["Transition"],
        "roundtrip.machine.table": ["Event", "State"],
        "roundtrip.trace.writing.recorder": ["Recorder"],
        "roundtrip.trace.writing.telemetry": ["Telemetry"],
        "roundtrip.tools.content": ["ToolResult"],
        "roundtrip.tools.media": ["Audio", "File", "Image"],
        "roundtrip.server.context": ["Context", "get_access_token", "get_context", "get_http_headers", "get_request"],
        "roundtrip.pages.settings": ["Pages"],
        "roundtrip.server.server": ["Server"],
        "roundtrip.docket.engine": ["DocketEngine"],
        "roundtrip.tools.options": ["from_meta", "tool"],
        "roundtrip.tools.promises": ["after"],
        "roundtrip.tokens.tickets": ["Ticket"],
    }

    def __getattr__(name: str) -> Any:
        # Import lazily, because the pytest plugin imports this package in every pytest run.
        from roundtrip.on_demand import load_public_name

        return load_public_name(__name__, name, _HOMES, modules=["errors", "ledger", "testing"])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
