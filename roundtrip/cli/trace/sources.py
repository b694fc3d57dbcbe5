"""Input and output of the `roundtrip trace` views: read transcripts, print results."""

import gc
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed, report_errors
from roundtrip.cli.parsing import OptionsAnywhere, add_call, add_files, add_json, add_output
from roundtrip.trace.reading.calls import Traced
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files, without_collection
from roundtrip.trace.writing.names import TRACE_VARIABLE

if TYPE_CHECKING:
    from roundtrip.cli.trace.terminal import Screen

LAST: Final = "last"
"""The word that stands for the newest call."""


def view(
    description: str,
    run: Callable[[Namespace], int],
    *,
    call: bool = False,
    options: Callable[[OptionsAnywhere], None] | None = None,
    json: bool = False,
    output: bool = False,
) -> Command:
    """Return the command for a view. Its last arguments are transcripts."""

    def configure(parser: OptionsAnywhere) -> None:
        additions = ((add_call, call), (options, True), (add_json, json), (add_output, output), (add_files, True))
        for add, is_included in additions:
            if add is not None and is_included:
                add(parser)

    return Command(description, configure, run=run)


def named_files(arguments: Namespace) -> list[str]:
    """Return the transcripts that the command line names. If the command line names no transcript, return those that
    the environment names.

    Raises:
        CommandFailed: Neither the command line nor the environment names a transcript.
    """
    names: Sequence[str] = arguments.files or ()
    if names:
        return list(names)
    default = os.environ.get(TRACE_VARIABLE)
    if not default:
        id = getattr(arguments, "call", None)
        if isinstance(id, str) and os.path.exists(id):
            raise CommandFailed(f"a call must come before the transcript, got {id!r}; write: {LAST} {id}")
        raise CommandFailed(
            f"no transcript was given; add a file or directory as the last argument, or set {TRACE_VARIABLE}"
        )
    return [default]


def load(arguments: Namespace) -> Traced:
    """Read the calls from the transcripts that the user named. If some lines cannot be read, print a warning with their
    number on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    return load_files(named_files(arguments))


def load_files(names: Sequence[str | Path]) -> Traced:
    """Read the calls from these transcripts. See `load`.

    Raises:
        CommandFailed: There is nothing to read.
    """
    with report_errors(NoTranscript), without_collection():
        reading = read_files(files_of(names))
        traced = join(reading.lines)
        # Calls stay in memory until the command ends. Freeze them, so that the garbage collector does not scan them
        # again.
        gc.freeze()
    warn_of_losses(reading.unreadable, reading.newer)
    return traced


def warn_of_losses(unreadable: int, newer: int) -> None:
    """Warn about unreadable lines, if there are any."""
    for number, reason in (
        (unreadable, "skipped: not part of a transcript"),
        (newer, "skipped: written by a newer roundtrip; upgrade to read them"),
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
    """Print `data()` as JSON if the user asks for JSON. Otherwise, call `draw` with a screen."""
    if arguments.json:
        print(json_text(data()), flush=True)
        return
    # Imported on use, because JSON output needs no terminal.
    from roundtrip.cli.trace.terminal import Screen

    screen = Screen()
    draw(screen)
    screen.flush()


def write_out(arguments: Namespace, text: str) -> None:
    """Write a text to the `--output` file. If there is none, write to standard output.

    Raises:
        CommandFailed: The file cannot be written.
    """
    path: Path | None = arguments.output
    if path is None:
        print(text, flush=True)
        return
    with (
        report_errors(OSError, about=f"cannot write {str(path)!r}: "),
        open(path, "w", encoding="utf-8", opener=_open_for_its_owner) as file,
    ):
        file.write(f"{text}\n")


def _open_for_its_owner(path: str, flags: int) -> int:
    # Only the owner may read the file, because it may contain values from a transcript.
    return os.open(path, flags, 0o600)
