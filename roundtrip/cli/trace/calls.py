"""Find calls in the named transcripts: by their index if they have one, and otherwise by reading all lines."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.trace.sources import LAST, load_files, named_files, warn, warn_of_losses
from roundtrip.trace.explaining.wording import listed_text
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.index.taking import STRAY
from roundtrip.trace.reading.calls import Traced, TracedCall
from roundtrip.trace.reading.transcripts import NoTranscript, Reading
from roundtrip.trace.writing.lines import RejectedLine

__all__ = ["FoundCalls", "NamedCall", "ReadCalls", "call_named", "find_call", "open_calls"]

_ALL: Final = -1
_MAX_CANDIDATES: Final = 10
"""Calls that are listed if none, or more than one, has the given name."""


class NamedCall(NamedTuple):
    """Call that a user may mean."""

    id: str
    tool: str


class FoundCalls(Protocol):
    """Calls of some transcripts."""

    def exact(self, id: str) -> TracedCall | None:
        """Return the call with an id."""
        ...

    def newest(self, limit: int) -> list[NamedCall]:
        """Return the calls that began last, the newest first."""
        ...

    def beginning_with(self, start: str, limit: int) -> list[NamedCall]:
        """Return calls whose ids begin with a text."""
        ...

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        """Yield the rows of the calls that pass a filter, the newest first."""
        ...

    def strays(self) -> list[RejectedLine]:
        """Return the rejected tokens of unknown calls, the newest first."""
        ...

    def stray_count(self) -> int:
        """Return the number of rejected tokens of unknown calls."""
        ...


def open_calls(arguments: Namespace, names: Sequence[str | Path] | None = None) -> FoundCalls:
    """Return the calls of the named transcripts; lines that cannot be read are reported on standard error.

    Raises:
        CommandFailed: There is nothing to read.
    """
    names = named_files(arguments) if names is None else names
    path = index_path(names)
    if path is None or not path.exists():
        return ReadCalls(load_files(names))
    try:
        index = CallIndex(names, path)
        index.refresh()
    except NoTranscript as error:
        raise CommandFailed(str(error)) from error
    except IndexUnusable as error:
        warn(f"{error}; all lines are read instead")
        return ReadCalls(load_files(names))
    unreadable, newer = index.unreadable()
    warn_of_losses(Reading(unreadable=unreadable, newer=newer))
    return _IndexedCalls(index)


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
    found = calls.exact(name)
    newest = calls.newest(_MAX_CANDIDATES + 1) if found is None else []
    if found is None and name == LAST and newest:
        found = calls.exact(newest[0].id)
    candidates = calls.beginning_with(name, _MAX_CANDIDATES + 1) if found is None else []
    if found is None and len(candidates) == 1:
        found = calls.exact(candidates[0].id)
    if found is not None:
        return found
    if candidates:
        raise CommandFailed(f"{name!r} is the beginning of several calls: {_listed(candidates)}")
    if not newest:
        raise CommandFailed(f"there is no call {name!r}: these transcripts have no call at all")
    raise CommandFailed(f"there is no call {name!r}; the last ones: {_listed(newest)}")


def _listed(calls: Sequence[NamedCall]) -> str:
    return listed_text([f"{call.id!r} ({call.tool!r})" for call in calls], _MAX_CANDIDATES)


class ReadCalls:
    """Calls of which all lines were read."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def exact(self, id: str) -> TracedCall | None:
        """Implement `FoundCalls.exact`."""
        return self._traced.calls.get(id)

    def newest(self, limit: int) -> list[NamedCall]:
        """Implement `FoundCalls.newest`."""
        return [NamedCall(call.id, call.tool) for call in [*self._traced.calls.values()][: -limit - 1 : -1]]

    def beginning_with(self, start: str, limit: int) -> list[NamedCall]:
        """Implement `FoundCalls.beginning_with`."""
        found = [call for call in self._traced.calls.values() if call.id.startswith(start)]
        return [NamedCall(call.id, call.tool) for call in found[:limit]]

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        """Implement `FoundCalls.rows`."""
        return filter.passing(row_of(call) for call in reversed(self._traced.calls.values()))

    def strays(self) -> list[RejectedLine]:
        """Implement `FoundCalls.strays`."""
        return sorted(self._traced.strays, key=lambda line: line.at, reverse=True)

    def stray_count(self) -> int:
        """Implement `FoundCalls.stray_count`."""
        return len(self._traced.strays)


class _IndexedCalls:
    """Calls by their index."""

    def __init__(self, index: CallIndex) -> None:
        self._index = index

    def exact(self, id: str) -> TracedCall | None:
        return self._index.find(id)

    def newest(self, limit: int) -> list[NamedCall]:
        return _named(self._index.page(CallFilter(), limit=limit).rows)

    def beginning_with(self, start: str, limit: int) -> list[NamedCall]:
        return _named(self._index.beginning_with(start, limit))

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        return self._index.rows(filter)

    def stray_count(self) -> int:
        return sum(count for _, count in self._index.reasons_of(STRAY))

    def strays(self) -> list[RejectedLine]:
        found = self._index.noticed(STRAY, limit=_ALL)
        return [one.line for one in found if isinstance(one.line, RejectedLine)]


def _named(rows: Sequence[Row]) -> list[NamedCall]:
    return [NamedCall(row["call"], row["tool"]) for row in rows]
