"""`CallIndex`, which finds calls in transcripts of any size."""

import heapq
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any, Final, NamedTuple

from roundtrip.trace.index.database import open_database, translated_errors
from roundtrip.trace.index.filters import CallFilter, fits
from roundtrip.trace.index.indexer import KEPT_POSITIONS, STRAY, Indexer, parse_omitted
from roundtrip.trace.index.positions import LinePosition, check_names, read_lines
from roundtrip.trace.index.rows import Row
from roundtrip.trace.reading.calls import Traced, TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import identity_of
from roundtrip.trace.writing.lines import Line, RejectedLine

_DIRECTORY_INDEX: Final = "index.sqlite3"
_FILE_SUFFIX: Final = ".index.sqlite3"
_END_POSITION: Final = (float("inf"), 0)
_WILDCARDS: Final = "*?["
_ALL_LINES: Final = -1
"""The LIMIT value for which SQLite returns all lines."""

# Conditions on call rows. The plus sign keeps SQLite from using the index on start times when only a few calls match.
_ALL: Final = "WHERE row IS NOT NULL AND (started, number)"
_ACTIVE: Final = "INDEXED BY calls_last WHERE row IS NOT NULL AND last >= ? AND (started, number)"
_BEGINNING_WITH: Final = "WHERE id >= ? AND id < ? AND row IS NOT NULL AND (+started, number)"

CallPosition = tuple[float, int]
"""Position of a call in a newest-first list."""


class RowPage(NamedTuple):
    """One page of a list."""

    rows: list[Row]
    following: CallPosition | None
    """The position of the page's last row; None if no more rows follow."""


class ListedLine(NamedTuple):
    """A line that is shown in a separate list: a rejected token or an operator action."""

    at: float
    line: Line
    place: tuple[float, int, int]


def index_path(names: Sequence[str | Path]) -> Path | None:
    """Return the index path for a single file or directory. For several names, return None."""
    if len(names) != 1:
        return None
    path = Path(names[0])
    return path / _DIRECTORY_INDEX if path.is_dir() else path.with_name(f"{path.name}{_FILE_SUFFIX}")


class CallIndex:
    """Calls in transcripts, found through an index that is updated on demand. Thread-safe.

    Args:
        names: Files, which must exist, and directories, which may be empty.
        path: The index file; None for a temporary index.
        later: Further files, which need not exist yet. Other programs that use this index also read these files.

    Raises:
        NoTranscript: A file does not exist.
        IndexUnusable: The index cannot be opened.
    """

    def __init__(self, names: Sequence[str | Path], path: Path | None = None, *, later: Sequence[Path] = ()) -> None:
        paths = [Path(name) for name in names]
        check_names(paths)
        self._folder: TemporaryDirectory[str] | None = None
        if path is None:
            self._folder = TemporaryDirectory(prefix="roundtrip-index-")
            path = Path(self._folder.name) / _DIRECTORY_INDEX
        self._path = path
        self._names, self._later = paths, later
        self._lock, self._write_lock = RLock(), RLock()
        self._open()

    def _open(self) -> None:
        # Use two connections: the first reading of large transcripts may take minutes, and must not block searches.
        self._write_database = open_database(self._path)
        self._database = open_database(self._path)
        with translated_errors(self._path):
            self._indexer = Indexer(self._write_database, self._names, self._later)
            self._identity = identity_of(self._path)

    def close(self) -> None:
        """Close the index, and delete it if it is temporary."""
        with self._lock, self._write_lock:
            self._write_database.close()
            self._database.close()
            if self._folder is not None:
                self._folder.cleanup()

    def _reopen(self) -> None:
        """Open the index again, because its file was deleted or replaced."""
        with self._lock:
            self._write_database.close()
            self._database.close()
            self._open()

    def refresh(self) -> None:
        """Read all appended lines, and drop the lines in deleted files."""
        while self.read_new_lines():
            pass

    def read_new_lines(self) -> int:
        """Read a few thousand appended lines, and return their number.

        Raises:
            NoTranscript: A transcript cannot be read.
            IndexUnusable: The index cannot be written.
        """
        with self._write_lock, translated_errors(self._path):
            if identity_of(self._path) != self._identity:
                self._reopen()
            return self._indexer.read_new_lines()

    def watch(self, step: Callable[[], None] | None, every: int) -> None:
        """During searches, call `step` each time SQLite has run `every` instructions. If `step` is None, stop these
        calls.
        """
        self._database.set_progress_handler(step, every)

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._lock, translated_errors(self._path):
            yield

    def _select(self, query: str, *values: object) -> list[Any]:
        with self._reading():
            return self._database.execute(query, values).fetchall()

    # Totals.

    @property
    def version(self) -> int:
        """Return a number that changes whenever a line is read."""
        ((read,),) = self._select("SELECT coalesce(sum(read), 0) FROM files")
        return read

    def has(self, id: str) -> bool:
        """Return True if the index has a call with this id."""
        return bool(self._select("SELECT 1 FROM calls WHERE id = ? AND row IS NOT NULL", id))

    def unreadable(self) -> tuple[int, int]:
        """Count the lines that cannot be read, and the lines that have a later format."""
        (found,) = self._select("SELECT coalesce(sum(unreadable), 0), coalesce(sum(newer), 0) FROM files")
        return found

    def count(self) -> int:
        """Count the calls."""
        # Each call has exactly one state.
        ((number,),) = self._select("SELECT coalesce(sum(calls), 0) FROM facets WHERE kind = 'state'")
        return number

    def choices(self, kind: str, limit: int) -> list[tuple[str, int]]:
        """Return a facet's most frequent values, each with the number of its calls."""
        query = "SELECT value, calls FROM facets WHERE kind = ? AND calls > 0 ORDER BY calls DESC, value LIMIT ?"
        return self._select(query, kind, limit)

    # Calls.

    def find(self, id: str) -> TracedCall | None:
        """Return a call with all its lines; None for an unknown id."""
        return self._join_call(id).calls.get(id)

    def find_unserved(self, id: str) -> TracedCall:
        """Return a call that has no recorded requests, with its operator actions."""
        return TracedCall(id, [], [], [], self._join_call(id).actions)

    def _join_call(self, id: str) -> Traced:
        with self._reading():
            query = "SELECT number, omitted FROM calls WHERE id = ?"
            number, omitted = self._database.execute(query, (id,)).fetchone() or (None, None)
            places = self._database.execute(KEPT_POSITIONS, (number,)).fetchall()
            lines = read_lines(self._indexer.files, map(LinePosition._make, places))
            return join((one.line for one in lines), parse_omitted({id: omitted}))

    def page(self, filter: CallFilter, *, limit: int, after: CallPosition | None = None) -> RowPage:
        """Return the newest rows that pass a filter, starting after a position."""
        with closing(self._find_rows(filter, after)) as passing:
            found = [*islice(passing, limit + 1)]
        return RowPage([row for _, row in found[:limit]], found[limit - 1][0] if len(found) > limit else None)

    def rows(self, filter: CallFilter) -> Iterator[Row]:
        """Yield all rows that pass a filter, newest first."""
        with closing(self._find_rows(filter, None)) as passing:
            for _, row in passing:
                yield row

    def number_of(self, filter: CallFilter) -> int | None:
        """Look up how many calls pass a filter. Return None if the index would have to count them one by one."""
        facets = [(kind, value) for kind, values in filter.facets.items() for value in values]
        if len(facets) > 1 or not filter.has_only_facets:
            return None
        if not filter.facets:
            return self.count()
        with self._reading():
            return sum(calls for kind, value in facets for _, calls in self._facets(kind, [value]))

    # Rejected tokens and operator actions.

    def listed_lines(
        self, event: str, *, reasons: Sequence[str] = (), limit: int, after: tuple[float, int, int] | None = None
    ) -> list[ListedLine]:
        """Return the newest lines for an event, starting after a position. If reasons are given, return only lines with
        one of these reasons.
        """
        marks = ", ".join("?" * len(reasons))
        query = (
            f"SELECT at, file, offset, length FROM notices {'INDEXED BY notices_reason' if reasons else ''} "  # noqa: S608
            f"WHERE event = ? AND (at, file, offset) < (?, ?, ?) {f'AND reason IN ({marks})' if reasons else ''} "
            "ORDER BY at DESC, file DESC, offset DESC LIMIT ?"
        )
        with self._reading():
            found = self._database.execute(query, (event, *(after or (float("inf"), 0, 0)), *reasons, limit)).fetchall()
            return [
                ListedLine(at, one.line, (at, *one.place[:2]))
                for at, *place in found
                for one in read_lines(self._indexer.files, [LinePosition(*place)])
            ]

    def reasons_of(self, event: str) -> list[tuple[str, int]]:
        """Return the reasons recorded for an event, each with the number of its lines."""
        query = "SELECT reason, count(*) FROM notices WHERE event = ? GROUP BY reason ORDER BY count(*) DESC"
        return self._select(query, event)

    def strays(self) -> list[RejectedLine]:
        """Return the rejected tokens that belong to no known call, newest first."""
        return [one.line for one in self.listed_lines(STRAY, limit=_ALL_LINES) if isinstance(one.line, RejectedLine)]

    def stray_count(self) -> int:
        """Count the rejected tokens that belong to no known call."""
        return sum(count for _, count in self.reasons_of(STRAY))

    # Searching.

    def _facets(self, kind: str, wanted: Sequence[str]) -> list[tuple[int, int]]:
        """Return the facets that match a pattern. Each item contains the facet's number and its call count.

        If a pattern equals an existing value, it matches only that value.
        """
        query = "SELECT number, calls FROM facets WHERE kind = ? AND value = ?"
        equal = {value: self._database.execute(query, (kind, value)).fetchall() for value in set(wanted)}
        patterns = [value for value, found in equal.items() if not found and any(char in value for char in _WILDCARDS)]
        if not patterns:
            return [row for found in equal.values() for row in found]
        every = self._database.execute("SELECT number, calls, value FROM facets WHERE kind = ?", (kind,))
        return [(number, calls) for number, calls, value in every if equal.get(value) or fits(value, patterns)]

    def _find_rows(self, filter: CallFilter, after: CallPosition | None) -> Generator[tuple[CallPosition, Row]]:
        """Yield the calls that pass a filter, and their positions, newest first.

        The search goes through the calls that have the rarest facet. For each of these calls, it looks up the other
        facets.
        """
        with self._reading(), ExitStack() as stack:
            facets = [self._facets(kind, values) for kind, values in filter.facets.items()]
            facets.sort(key=lambda one: sum(calls for _, calls in one))
            before = min(after or _END_POSITION, _END_POSITION if filter.before is None else (filter.before, 0))
            if filter.start:
                places = self._in_order(_BEGINNING_WITH, (filter.start, f"{filter.start}\U0010ffff"), before)
            elif filter.since is not None and not self._is_rarer(facets, filter.since):
                places = self._in_order(_ACTIVE, (filter.since,), before)
            elif facets:
                leading = [self._facet_positions(number, before) for number, _ in facets.pop(0)]
                for one in leading:
                    stack.callback(one.close)
                places = (place for place, _ in groupby(heapq.merge(*leading, reverse=True)))
            else:
                places = self._in_order(_ALL, (), before)
            others = [[number for number, _ in one] for one in facets]
            for place in places:
                if all(self._has_one(place, numbers) for numbers in others):
                    (text,) = self._database.execute("SELECT row FROM calls WHERE number = ?", place[1:]).fetchone()
                    row = json.loads(text)
                    if filter.passes(row):
                        yield place, row

    def _is_rarer(self, facets: Sequence[Sequence[tuple[int, int]]], since: float) -> bool:
        """Return True if the number of calls with the rarest facet is smaller than the number of calls active since the
        given time.
        """
        if not facets:
            return False
        rarest = sum(calls for _, calls in facets[0])
        active = self._database.execute(
            "SELECT 1 FROM calls INDEXED BY calls_last WHERE row IS NOT NULL AND last >= ? LIMIT ?", (since, rarest + 1)
        ).fetchall()
        return rarest < len(active)

    def _in_order(self, condition: str, values: tuple[object, ...], before: CallPosition) -> Iterator[CallPosition]:
        return self._database.execute(
            f"SELECT started, number FROM calls {condition} < (?, ?) ORDER BY started DESC, number DESC",  # noqa: S608
            (*values, *before),
        )

    def _facet_positions(self, facet: int, before: CallPosition) -> Generator[CallPosition]:
        yield from self._database.execute(
            "SELECT started, call FROM marks WHERE facet = ? AND (started, call) < (?, ?) "
            "ORDER BY started DESC, call DESC",
            (facet, *before),
        )

    def _has_one(self, place: CallPosition, facets: Sequence[int]) -> bool:
        return any(
            self._database.execute(
                "SELECT 1 FROM marks WHERE facet = ? AND started = ? AND call = ?", (facet, *place)
            ).fetchone()
            is not None
            for facet in facets
        )
