"""`roundtrip graph`: draw the state machine, or the dependencies of a server's tools."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_target
from roundtrip.trace.writing.names import TRACE_VARIABLE

_FORMATS: Final = ("mermaid", "dot", "text")


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser, nargs="?")
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="draw only this tool; default: all tools")
    parser.add_argument("--format", choices=_FORMATS, default=_FORMATS[0], help="default: %(default)s")
    parser.add_option("--output", "FILE", "write to this file instead of standard output")
    parser.add_option("--call", "ID", "draw the state machine, and mark this call's path and current state")
    parser.add_option(
        "--trace",
        "FILE",
        f"with --call: a transcript file or directory; may be repeated; default: ${TRACE_VARIABLE}",
        repeats=True,
        dest="files",
    )


COMMAND = Command(
    "Without arguments, draw the state machine of a call. With a server, draw the functions that fill its tools' "
    "parameters, and mark functions that ask. With --call, mark a recorded call's path through the state machine.",
    _configure,
)
