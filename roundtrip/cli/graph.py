"""`roundtrip graph`: draw the state machine, or the dependencies of a server's tools."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP, load_attached
from roundtrip.trace.writing.names import TRACE_VARIABLE

if TYPE_CHECKING:
    from roundtrip.trace.drawings.machine import Format

__all__ = ["COMMAND"]

_FORMATS: Final = ("mermaid", "dot", "text")


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="one tool of it; by default all of them")
    parser.add_argument("--format", choices=_FORMATS, default=_FORMATS[0], help="default: %(default)s")
    parser.add_argument("--output", metavar="FILE", help="write it to a file instead of printing it")
    parser.add_argument("--call", metavar="ID", help="draw the machine with the path and the state of this call marked")
    parser.add_argument(
        "--trace",
        dest="files",
        action="append",
        metavar="FILE",
        help=f"with --call, a transcript or a directory of them; may be repeated; by default ${TRACE_VARIABLE}",
    )


def _run(arguments: Namespace) -> int:
    from roundtrip.trace.drawings.machine import Format

    format = Format(arguments.format)
    if arguments.call is not None:
        drawing = _draw_call(arguments, format)
    else:
        drawing = _draw(arguments.target, arguments.tool, format)
    if arguments.output is None:
        print(drawing, flush=True)
    else:
        _write(arguments.output, drawing + "\n")
    return 0


def _write(file: str, drawing: str) -> None:
    try:
        Path(file).write_text(drawing, encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandFailed(f"cannot write {file!r}: {error.strerror or error}") from error


def _draw_call(arguments: Namespace, format: "Format") -> str:
    from roundtrip.cli.trace.calls import find_call
    from roundtrip.trace.drawings.machine import draw_machine

    if arguments.target is not None:
        raise CommandFailed("--call marks the path of a call through the machine; leave MODULE:SERVER out")
    call = find_call(arguments)
    visited = {(source, event) for source, event, _ in call.arrows}
    return draw_machine(format, visited=visited, current=call.state)


def _draw(target: str | None, tool: str | None, format: "Format") -> str:
    from roundtrip.trace.drawings.machine import draw_machine
    from roundtrip.trace.drawings.plans import draw_plans

    if target is None:
        return draw_machine(format)
    plans = load_attached(target).plans
    if not plans:
        raise CommandFailed(f"the server {target!r} has no tools")
    if tool is None:
        return draw_plans(plans, format)
    if tool not in plans:
        raise CommandFailed(f"the server {target!r} has no tool {tool!r}; its tools: {', '.join(plans)}")
    return draw_plans({tool: plans[tool]}, format)


COMMAND = Command(
    "Without arguments, draw the states and events of every call. With a server, draw the functions that fill the "
    "parameters of its tools, and mark those that ask. With --call, mark the path of a recorded call.",
    _configure,
    _run,
)
