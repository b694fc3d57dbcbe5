"""What the views of `roundtrip trace` read, and where they write."""

import gc
import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from roundtrip.cli.command import CommandFailed
from roundtrip.trace.reading.calls import Traced, TracedCall, join
from roundtrip.trace.reading.transcripts import NoTranscript, Reading, files_of, read_files, without_collection
from roundtrip.trace.writing.names import TRACE_VARIABLE

__all__ = [
    "find_call",
    "json_text",
    "load",
    "load_files",
    "named_files",
    "tell_losses",
    "warn",
    "write_out",
]

_LISTED: Final = 10
"""Calls that are offered where none, or more than one, was named."""


def named_files(arguments: Namespace) -> list[str]:
    """The names of files and directories that were given, else the one that the environment gives.

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
    """The calls of the transcripts that were named. What could not be read is told on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    return load_files(named_files(arguments))


def load_files(names: Sequence[str | Path]) -> Traced:
    """The calls of some transcripts, as `load`.

    Raises:
        CommandFailed: There is nothing to read.
    """
    try:
        with without_collection():
            reading = read_files(files_of(names))
            traced = join(reading.lines)
            # They stay until the command ends, so the collector need not look at them again.
            gc.freeze()
    except NoTranscript as error:
        raise CommandFailed(str(error)) from error
    tell_losses(reading)
    return traced


def tell_losses(reading: Reading) -> None:
    """Say how many lines could not be read, if any."""
    if reading.unreadable:
        warn(f"{_lines(reading.unreadable)} not a transcript's, and left out")
    if reading.newer:
        warn(f"{_lines(reading.newer)} of a newer roundtrip, and left out; upgrade to read them")


def _lines(number: int) -> str:
    return f"{number} line is" if number == 1 else f"{number} lines are"


def warn(text: str) -> None:
    """Say something that does not belong to what is asked for."""
    print(f"roundtrip trace: {text}", file=sys.stderr)


LAST: Final = "last"
"""Names the newest call, for those who have just made it."""


def find_call(traced: Traced, id: str) -> TracedCall:
    """The call of a name, or of the beginning of one; `last` is the one that began last.

    Raises:
        CommandFailed: There is none, or more than one.
    """
    name = id.strip()
    exact = traced.calls.get(name)
    if exact is not None:
        return exact
    if name == LAST and traced.calls:
        return [*traced.calls.values()][-1]
    candidates = [call for call in traced.calls.values() if call.id.startswith(name)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise CommandFailed(f"{name!r} is the beginning of several calls: {_listed(candidates)}")
    if not traced.calls:
        raise CommandFailed(f"there is no call {name!r}: these transcripts tell of no call at all")
    raise CommandFailed(f"there is no call {name!r}; the last ones: {_listed([*traced.calls.values()][::-1])}")


def _listed(calls: Sequence[TracedCall]) -> str:
    shown = ", ".join(f"{call.id!r} ({call.tool!r})" for call in calls[:_LISTED])
    more = len(calls) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def json_text(value: Mapping[str, Any] | Sequence[Any], *, indent: int | None = 2) -> str:
    """Some JSON that a terminal can be shown: in ASCII, with every control character escaped."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def write_out(arguments: Namespace, text: str) -> None:
    """Write what was asked for to the file that was named, else to standard output.

    Raises:
        CommandFailed: The file cannot be written.
    """
    path: Path | None = getattr(arguments, "output", None)
    if path is None:
        print(text, flush=True)
        return
    try:
        with open(path, "w", encoding="utf-8", opener=_open_for_its_owner) as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise CommandFailed(f"cannot write {str(path)!r}: {error.strerror}") from error


def _open_for_its_owner(path: str, flags: int) -> int:
    # It may hold all that the transcript does, which others cannot read either.
    return os.open(path, flags, 0o600)
