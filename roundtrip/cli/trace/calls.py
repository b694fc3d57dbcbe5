"""Find calls in the named transcripts: by their index if they have one, and otherwise by reading all lines."""

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.trace.sources import LAST, load_files, named_files, warn, warn_of_losses
from roundtrip.trace.explaining.wording import listed_text
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.reading.calls import Traced, TracedCall
from roundtrip.trace.reading.transcripts import NoTranscript, files_of
from roundtrip.trace.writing.lines import RejectedLine
from roundtrip.trace.writing.operator_log import operator_log_path

_MAX_CANDIDATES: Final = 10
"""Calls that are listed if none, or more than one, has the given name."""


class ReadCalls:
    """Calls of which all lines were read, with the methods of `CallIndex` that commands need."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def find(self, id: str) -> TracedCall | None:
        """Return the call with an id."""
        return self._traced.calls.get(id)

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        """Yield the rows of the calls that pass a filter, the newest first."""
        calls = reversed(self._traced.calls.values())
        return filter.passing(row_of(call) for call in calls if call.id.startswith(filter.start))

    def strays(self) -> list[RejectedLine]:
        """Return the rejected tokens of unknown calls, the newest first."""
        return sorted(self._traced.strays, key=lambda line: line.at, reverse=True)

    def stray_count(self) -> int:
        """Return the number of rejected tokens of unknown calls."""
        return len(self._traced.strays)


FoundCalls = ReadCalls | CallIndex
"""Calls of some transcripts."""


def open_calls(arguments: Namespace, names: Sequence[str | Path] | None = None) -> FoundCalls:
    """Return the calls of the named transcripts, with the actions of the operator log beside them.

    Lines that cannot be read are reported on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    names = named_files(arguments) if names is None else names
    operator_log = _operator_log_beside([str(name) for name in names])
    path = index_path(names)
    if path is None or not path.exists():
        return ReadCalls(load_files([*names, *operator_log]))
    try:
        index = CallIndex(names, path, later=operator_log)
        index.refresh()
    except NoTranscript as error:
        raise CommandFailed(str(error)) from error
    except IndexUnusable as error:
        warn(f"{error}; all lines are read instead")
        return ReadCalls(load_files([*names, *operator_log]))
    warn_of_losses(*index.unreadable())
    return index


def _operator_log_beside(names: list[str]) -> list[Path]:
    """Return the operator log of some transcripts, unless there is none or it is among them."""
    path = operator_log_path(None, names, os.environ)
    if path is None or not path.is_file():
        return []
    try:
        known = {file.resolve() for file in files_of(names)}
    except NoTranscript:
        # Reading the transcripts reports it.
        return []
    return [] if path.resolve() in known else [path]


def find_call(arguments: Namespace) -> TracedCall:
    """Return the call of the command line: by its id, or a unique beginning of one; `last` is the call that began last.

    Raises:
        CommandFailed: There is nothing to read, no call fits, or more than one.
    """
    return call_named(open_calls(arguments), arguments.call)


def call_named(calls: FoundCalls, id: str) -> TracedCall:
    """Return a call, as `find_call` does.

    Raises:
        CommandFailed: No call fits, or more than one.
    """
    name = id.strip()
    if (found := calls.find(name)) is not None:
        return found
    newest = _newest(calls, CallFilter())
    candidates = newest[:1] if name == LAST else _newest(calls, CallFilter(start=name))
    if len(candidates) == 1 and (found := calls.find(candidates[0]["call"])) is not None:
        return found
    if candidates:
        raise CommandFailed(f"{name!r} is the beginning of several calls: {_listed(candidates)}")
    if not newest:
        raise CommandFailed(f"there is no call {name!r}: these transcripts have no call at all")
    raise CommandFailed(f"there is no call {name!r}; the last ones: {_listed(newest)}")


def _newest(calls: FoundCalls, filter: CallFilter) -> list[Row]:
    return [*islice(calls.rows(filter), _MAX_CANDIDATES + 1)]


def _listed(rows: Sequence[Row]) -> str:
    return listed_text([f"{row['call']!r} ({row['tool']!r})" for row in rows], _MAX_CANDIDATES)
