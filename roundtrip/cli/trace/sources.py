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
    """Return a view's command, which takes transcripts as its last arguments."""

    def configure(parser: OptionsAnywhere) -> None:
        additions = ((add_call, call), (options, True), (add_json, json), (add_output, output), (add_files, True))
        for add, is_included in additions:
            if add is not None and is_included:
                add(parser)

    return Command(description, configure, run=run)


def named_files(arguments: Namespace) -> list[str]:
    """Return the transcripts that the command line names, or else those that the environment names.

    Raises:
        CommandFailed: Neither names a transcript.
    """
    names: Sequence[str] = arguments.files or ()
    if names:
        return list(names)
    default = os.environ.get(TRACE_VARIABLE)
    if not default:
        id = getattr(arguments, "call", None)
        if isinstance(id, str) and os.path.exists(id):
            raise CommandFailed(f"a call must come before the transcript, got {id!r}; write: {LAST} {id}")
        raise CommandFailed(f"no transcript is given; name a file or directory last, or set {TRACE_VARIABLE}")
    return [default]


def load(arguments: Namespace) -> Traced:
    """Read the calls from the transcripts that the user named. Print the number of unreadable lines in a warning on
    standard error.

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
        # The calls live until the command ends, so stop the garbage collector from scanning them again.
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
    """Print `data()` as JSON if the user asks for JSON; otherwise, draw on a screen."""
    if arguments.json:
        print(json_text(data()), flush=True)
        return
    # Lazy: JSON output needs no terminal.
    from roundtrip.cli.trace.terminal import Screen

    screen = Screen()
    draw(screen)
    screen.flush()


def write_out(arguments: Namespace, text: str) -> None:
    """Write a text to the `--output` file, or else to standard output.

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
    # Make the file readable only by its owner, like the transcript whose contents it may hold.
    return os.open(path, flags, 0o600)
