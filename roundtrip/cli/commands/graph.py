"""`roundtrip graph`: draw the state machine, or the dependencies of a server's tools."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_target
from roundtrip.trace.writing.names import TRACE_VARIABLE

_FORMATS: Final = ("mermaid", "dot", "text")


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser, nargs="?")
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="one tool of it; by default all of them")
    parser.add_argument("--format", choices=_FORMATS, default=_FORMATS[0], help="default: %(default)s")
    parser.add_option("--output", "FILE", "write it to a file instead of printing it")
    parser.add_option("--call", "ID", "draw the machine with the path and the state of this call marked")
    parser.add_option(
        "--trace",
        "FILE",
        f"with --call, a transcript or a directory of them; may be repeated; by default ${TRACE_VARIABLE}",
        repeats=True,
        dest="files",
    )


COMMAND = Command(
    "Without arguments, draw the states and events of every call. With a server, draw the functions that fill the "
    "parameters of its tools, and mark those that ask. With --call, mark the path of a recorded call.",
    _configure,
)
