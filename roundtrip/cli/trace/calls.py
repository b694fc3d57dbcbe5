"""Call lookup in transcripts: through the index if there is one, and otherwise by reading every line."""

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
"""Maximum number of calls that an error lists if an id matches no call or several calls."""


class LoadedCalls:
    """All calls in the transcripts, read into memory. This class has the `CallIndex` methods that commands need."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def find(self, id: str) -> TracedCall | None:
        """Return the call with this id; None if there is no such call."""
        return self._traced.calls.get(id)

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        """Yield a row for each call that passes the filter, newest first."""
        calls = reversed(self._traced.calls.values())
        return filter.passing(row_of(call) for call in calls if call.id.startswith(filter.start))

    def strays(self) -> list[RejectedLine]:
        """Return the rejected tokens that belong to no known call, newest first."""
        return sorted(self._traced.strays, key=lambda line: line.at, reverse=True)

    def stray_count(self) -> int:
        """Return the number of rejected tokens that belong to no known call."""
        return len(self._traced.strays)


CallSource = LoadedCalls | CallIndex
"""Calls in one or more transcripts."""


def open_calls(arguments: Namespace, names: Sequence[str | Path] | None = None) -> CallSource:
    """Open the named transcripts, and the operator log beside them.

    If some lines cannot be read, print a warning with their number on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    names = named_files(arguments) if names is None else names
    operator_log = _operator_log_beside([str(name) for name in names])
    path = index_path(names)
    if path is None or not path.exists():
        return LoadedCalls(load_files([*names, *operator_log]))
    try:
        index = CallIndex(names, path, later=operator_log)
        index.refresh()
    except NoTranscript as error:
        raise CommandFailed(str(error)) from error
    except IndexUnusable as error:
        warn(f"{error}; reading all lines instead")
        return LoadedCalls(load_files([*names, *operator_log]))
    warn_of_losses(*index.unreadable())
    return index


def _operator_log_beside(names: list[str]) -> list[Path]:
    """Return the operator log beside the transcripts. Return an empty list if the log is missing, or is already one of
    the transcripts.
    """
    path = operator_log_path(None, names, os.environ)
    if path is None or not path.is_file():
        return []
    try:
        transcripts = {file.resolve() for file in files_of(names)}
    except NoTranscript:
        # Do not report this error here: reading the transcripts raises the same error.
        return []
    return [] if path.resolve() in transcripts else [path]


def find_call(arguments: Namespace) -> TracedCall:
    """Return the call that the command line names. The name is an id, an unambiguous prefix of an id, or `last` for the
    newest call.

    Raises:
        CommandFailed: There is nothing to read, no call matches, or several calls match.
    """
    return select_call(open_calls(arguments), arguments.call)


def select_call(calls: CallSource, id: str) -> TracedCall:
    """Return the call that an id, an unambiguous prefix or `last` names. See `find_call`.

    Raises:
        CommandFailed: No call matches, or several calls match.
    """
    name = id.strip()
    if (call := calls.find(name)) is not None:
        return call
    newest = _newest(calls, CallFilter())
    candidates = newest[:1] if name == LAST else _newest(calls, CallFilter(start=name))
    if len(candidates) == 1 and (call := calls.find(candidates[0]["call"])) is not None:
        return call
    if candidates:
        raise CommandFailed(f"{name!r} matches several calls: {_list_text(candidates)}")
    if not newest:
        raise CommandFailed(f"there is no call {name!r}: these transcripts contain no calls")
    raise CommandFailed(f"there is no call {name!r}; the newest calls: {_list_text(newest)}")


def _newest(calls: CallSource, filter: CallFilter) -> list[Row]:
    return [*islice(calls.rows(filter), _MAX_CANDIDATES + 1)]


def _list_text(rows: Sequence[Row]) -> str:
    return listed_text([f"{row['call']!r} ({row['tool']!r})" for row in rows], _MAX_CANDIDATES)
