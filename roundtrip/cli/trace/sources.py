"""Read transcripts for the views of `roundtrip trace`, and write the output of the views."""

import gc
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed, reported
from roundtrip.cli.parsing import OptionsAnywhere, add_call, add_files, add_json, add_output
from roundtrip.trace.reading.calls import Traced
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files, without_collection
from roundtrip.trace.writing.names import TRACE_VARIABLE

if TYPE_CHECKING:
    from roundtrip.cli.trace.terminal import Screen

LAST: Final = "last"
"""The name of the newest call."""


def view(
    description: str,
    run: Callable[[Namespace], int],
    *,
    call: bool = False,
    options: Callable[[OptionsAnywhere], None] | None = None,
    json: bool = False,
    output: bool = False,
) -> Command:
    """Return the command of a view, which takes transcripts as its last arguments."""

    def configure(parser: OptionsAnywhere) -> None:
        wanted = ((add_call, call), (options, True), (add_json, json), (add_output, output), (add_files, True))
        for add, is_wanted in wanted:
            if add is not None and is_wanted:
                add(parser)

    return Command(description, configure, run=run)


def named_files(arguments: Namespace) -> list[str]:
    """Return the files and directories that the user named, else the one that the environment names.

    Raises:
        CommandFailed: There are none.
    """
    names: Sequence[str] = arguments.files or ()
    if names:
        return list(names)
    found = os.environ.get(TRACE_VARIABLE)
    if not found:
        id = getattr(arguments, "call", None)
        if isinstance(id, str) and os.path.exists(id):
            raise CommandFailed(f"{id!r} is a transcript, and a call must be named before it; write: {LAST} {id}")
        raise CommandFailed(f"name a transcript, or a directory of them, as the last argument, or set {TRACE_VARIABLE}")
    return [found]


def load(arguments: Namespace) -> Traced:
    """Return the calls of the named transcripts; lines that cannot be read are reported on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    return load_files(named_files(arguments))


def load_files(names: Sequence[str | Path]) -> Traced:
    """Return the calls of some transcripts, as `load` does.

    Raises:
        CommandFailed: There is nothing to read.
    """
    with reported(NoTranscript), without_collection():
        reading = read_files(files_of(names))
        traced = join(reading.lines)
        # The calls live until the command ends, so the collector need not examine them again.
        gc.freeze()
    warn_of_losses(reading.unreadable, reading.newer)
    return traced


def warn_of_losses(unreadable: int, newer: int) -> None:
    """Report how many lines could not be read, if any."""
    for number, reason in (
        (unreadable, "not a transcript's, and left out"),
        (newer, "of a newer roundtrip, and left out; upgrade to read them"),
    ):
        if number:
            warn(f"{number} line is {reason}" if number == 1 else f"{number} lines are {reason}")


def warn(text: str) -> None:
    """Print a warning on standard error."""
    print(f"roundtrip trace: {text}", file=sys.stderr)


def json_text(value: Mapping[str, Any] | Sequence[Any], *, indent: int | None = 2) -> str:
    """Return JSON that is safe on a terminal: ASCII, with every control character escaped."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def present(arguments: Namespace, data: Callable[[], Any], draw: "Callable[[Screen], None]") -> None:
    """Print `data()` as JSON if the user asks for JSON, else draw."""
    if arguments.json:
        print(json_text(data()), flush=True)
        return
    # Imported here, as JSON needs no terminal.
    from roundtrip.cli.trace.terminal import Screen

    screen = Screen()
    draw(screen)
    screen.flush()


def write_out(arguments: Namespace, text: str) -> None:
    """Write a text to the file of `--output`, else to standard output.

    Raises:
        CommandFailed: The file cannot be written.
    """
    path: Path | None = arguments.output
    if path is None:
        print(text, flush=True)
        return
    with (
        reported(OSError, about=f"cannot write {str(path)!r}: "),
        open(path, "w", encoding="utf-8", opener=_open_for_its_owner) as file,
    ):
        file.write(f"{text}\n")


def _open_for_its_owner(path: str, flags: int) -> int:
    # The file may hold everything in the transcript, which only its owner can read.
    return os.open(path, flags, 0o600)
