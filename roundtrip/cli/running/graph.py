"""Run `roundtrip graph`."""

from argparse import Namespace
from pathlib import Path

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.loading import load_attached
from roundtrip.cli.trace.calls import find_call
from roundtrip.text import suggestion
from roundtrip.trace.drawings.machine import Format, draw_machine
from roundtrip.trace.drawings.plans import draw_plans


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    format = Format(arguments.format)
    if arguments.call is not None:
        drawing = _draw_call(arguments, format)
    else:
        drawing = _draw(arguments.target, arguments.tool, format)
    if arguments.output is None:
        print(drawing, flush=True)
    else:
        with report_errors(OSError, about=f"cannot write {arguments.output!r}: "):
            Path(arguments.output).write_text(f"{drawing}\n", encoding="utf-8", errors="replace")
    return 0


def _draw_call(arguments: Namespace, format: Format) -> str:
    if arguments.target is not None:
        raise CommandFailed("--call marks a call's path through the state machine; remove MODULE:SERVER")
    call = find_call(arguments)
    visited = {(source, event) for source, event, _ in call.arrows}
    return draw_machine(format, visited=visited, current=call.state)


def _draw(target: str | None, tool: str | None, format: Format) -> str:
    if target is None:
        return draw_machine(format)
    plans = load_attached(target).plans
    if not plans:
        raise CommandFailed(f"the server {target!r} has no tools")
    if tool is None:
        return draw_plans(plans, format)
    if tool not in plans:
        near = suggestion(tool, plans) or f"; its tools: {', '.join(plans)}"
        raise CommandFailed(f"the server {target!r} has no tool {tool!r}{near}")
    return draw_plans({tool: plans[tool]}, format)
