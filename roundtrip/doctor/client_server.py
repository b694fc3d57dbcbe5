"""Server for `roundtrip doctor --client`. Its only tool reports which questions a connected client can be asked.

`roundtrip serve roundtrip.doctor.client_server:make_server` makes the server available on the internet.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from roundtrip.doctor.client_report import ClientReport, Trial, client_report
from roundtrip.machine.journal import OUTCOMES
from roundtrip.server.context import Context
from roundtrip.server.server import Server
from roundtrip.tools.content import ToolResult

NAME: Final = "roundtrip-doctor"
TOOL: Final = "what_can_you_ask"

_MAX_CLIENTS: Final = 1000
"""Maximum number of reported clients to remember."""
_QUESTION: Final = "This is a test by roundtrip doctor. Do you see this form?"


def make_server(tell: Callable[[ClientReport], None] | None = None) -> Server[Any]:
    """Create the server.

    Args:
        tell: A function that receives each client's report when the client connects, and again after each trial. By
            default, it prints the report to standard error.
    """
    tell = _print if tell is None else tell
    reported = set[tuple[str, str, str, str]]()

    async def greet(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Report each client once, at the first request after its handshake."""
        if ctx.session.client_params is not None:
            report = client_report(ctx)
            key = (report.name, report.version, report.revision, repr(report.declared))
            if key not in reported and len(reported) < _MAX_CLIENTS:
                reported.add(key)
                tell(report)
        return await call_next(ctx)

    server = Server[Any](
        NAME,
        instructions=f"Call {TOOL} to see which questions this server may ask the user of this client.",
        # Turn the probe off, because these processes do not continue each other's calls.
        probe=False,
        trace=False,
        middleware=[greet],
    )

    @server.tool(name=TOOL, annotations={"readOnlyHint": True, "openWorldHint": False})
    async def what_can_you_ask(ctx: Context, try_a_form: bool = False) -> ToolResult:
        """Report which questions a server can ask the user of this client.

        Args:
            try_a_form: True to show the user a form, and report the answer and the time that it took.
        """
        report = client_report(ctx.request_context)
        if try_a_form and not report.obstacles["form"]:
            began = await ctx.step("began", _now)
            outcome = await ctx.ask_outcome("seen", _QUESTION, bool)
            answer = OUTCOMES[outcome.action]
            if outcome.action == "accept":
                answer += f" with {'yes' if outcome.data else 'no'}"
            report = replace(report, trial=Trial(answer, max(_now() - began, 0.0)))
            tell(report)
        return ToolResult(content="\n".join(report.lines()), structured_content=report.as_data())

    return server


def _now() -> float:
    return time.time()


def _print(report: ClientReport) -> None:
    # Do not print to standard output, because it carries the protocol if the transport is stdio.
    sys.stderr.write("\n".join(["", *report.lines(), ""]))
    sys.stderr.flush()
