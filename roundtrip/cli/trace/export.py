"""`roundtrip trace export`: one call as a file that others can look at."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import add_call, add_files, add_output
from roundtrip.cli.trace.sources import find_call, load, write_out
from roundtrip.trace.explaining.sequence import mermaid
from roundtrip.trace.page.document import html
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.otlp import otlp

__all__ = ["COMMAND"]


@dataclass(frozen=True, slots=True)
class _Format:
    """What a call can be written as."""

    option: str
    help: str
    write: Callable[[TracedCall], str]
    """Without a newline at the end."""


_FORMATS: Final[tuple[_Format, ...]] = (
    _Format("--html", "a page: one file that loads nothing, to step through the rounds", html),
    _Format("--mermaid", "a Mermaid sequence diagram", mermaid),
    _Format("--otlp", "spans for OpenTelemetry, in OTLP's JSON: names and times, and no answers or texts", otlp),
)


def _configure(parser: ArgumentParser) -> None:
    add_call(parser)
    formats = parser.add_mutually_exclusive_group(required=True)
    for format in _FORMATS:
        formats.add_argument(format.option, dest="write", action="store_const", const=format.write, help=format.help)
    add_output(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    write: Callable[[TracedCall], str] = arguments.write
    write_out(arguments, write(find_call(load(arguments), arguments.call)))
    return 0


COMMAND = Command(
    description=(
        "Write one call to standard output, or to the file that --output names. It shows what the transcript holds: "
        "answers and texts only where they were recorded with reveal=."
    ),
    configure=_configure,
    run=_run,
)
