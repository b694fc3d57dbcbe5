"""Indexing of transcript lines: store each line's position, and update the row of its call."""

import heapq
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.trace.index.database import writing
from roundtrip.trace.index.positions import (
    HEAD_BYTES,
    LinePosition,
    PositionedLine,
    TranscriptFile,
    find_files,
    read_appended,
    read_head,
    read_lines,
)
from roundtrip.trace.index.rows import Facet, facets_of, row_of
from roundtrip.trace.reading.calls import Omitted, TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import FileIdentity, Reading, parse_line, without_collection
from roundtrip.trace.writing.lines import ActedLine, Line, RejectedLine

_BATCH_LINES: Final = 20_000
STRAY: Final = "stray"
"""An additional event, under which rejected tokens are listed if they belong to no known call."""
KEPT_POSITIONS: Final = "SELECT file, offset, length FROM lines WHERE call = ? AND omitted = 0"
"""Selects the positions of a call's lines, except the lines of omitted requests."""
_MAX_VALUES: Final = 500
"""Maximum number of values in one SQL statement."""


_identity = id
"""The built-in function `id`, for functions in which `id` is a call id."""


class _KnownCall(NamedTuple):
    """A call in the index."""

    number: int
    started: float | None
    facets: str | None
    omitted: str | None


def parse_omitted(texts: Mapping[str, str | None]) -> dict[str, Omitted]:
    """Parse the index's `omitted` column. Return the omitted requests by call id."""
    return {id: Omitted(**json.loads(text)) for id, text in texts.items() if text is not None}


class Indexer:
    """Reader that adds transcript lines to an index. Several processes may use one index.

    Args:
        database: The index.
        names: Files and directories.
        later: Further files, which the index records for all programs that use it.
    """

    def __init__(self, database: sqlite3.Connection, names: Sequence[Path], later: Sequence[Path]) -> None:
        self._database = database
        self._names = names
        database.executemany("INSERT OR IGNORE INTO others VALUES (?)", [(str(path.resolve()),) for path in later])
        self._checked = False
        self.files: dict[int, TranscriptFile] = {}
        """The files by their numbers in the index."""
        self._searched: dict[FileIdentity, tuple[int, int]] = {}
        """For each file, the offset up to which lines were read, and the offset up to which no further newline was
        found.

        Without the second offset, a long unfinished line would be searched again and again.
        """

    def read_new_lines(self) -> int:
        """Read at most a few thousand newly appended lines, and return their number."""
        others = [Path(path) for (path,) in self._database.execute("SELECT path FROM others")]
        found = find_files([*self._names, *others])
        if self._is_current(found):
            return 0
        with without_collection(), writing(self._database):
            self._match(found)
            placed, count = self._read()
            self._write(placed)
        return count

    # Files.

    def _is_current(self, found: Sequence[TranscriptFile]) -> bool:
        rows = self._database.execute("SELECT number, device, inode, read FROM files").fetchall()
        known = {(device, inode): (number, read) for number, device, inode, read in rows}
        places = {one.identity: one for one in found}
        if not self._checked or known.keys() != places.keys():
            return False
        # Rotation changes file names, so look up the files by their identity.
        self.files = {number: places[identity] for identity, (number, _) in known.items()}
        return all(
            # If a file had lines and is now empty, it was truncated.
            places[identity].size == (self._searched_in(places[identity], read) or read)
            for identity, (_, read) in known.items()
        )

    def _searched_in(self, file: TranscriptFile, read: int) -> int:
        """Return the offset up to which the file was searched for the next newline; 0 if unknown."""
        before, searched = self._searched.get(file.identity, (0, 0))
        # If the file was rewritten, it is shorter now, or was read up to a different offset.
        return searched if before == read and searched <= file.size else 0

    def _match(self, found: Sequence[TranscriptFile]) -> None:
        """Match the existing files to the indexed files by inode. Drop deleted files, and number new files."""
        places = {one.identity: one for one in found}
        self.files = {}
        gone: list[int] = []
        for number, device, inode, head, digest, read in self._database.execute(
            "SELECT number, device, inode, head, digest, read FROM files ORDER BY number"
        ).fetchall():
            one = places.pop((device, inode), None)
            if one is not None and one.size >= read and read_head(one, head) == (head, digest):
                self.files[number] = one
                continue
            gone.append(number)
            if one is not None:
                # The file was rewritten, or it is a different file with the same inode.
                places[device, inode] = one
        self._forget(gone)
        for one in found:
            if one.identity in places:
                self._add(one)
        self._checked = True

    def _add(self, one: TranscriptFile) -> None:
        cursor = self._database.execute(
            "INSERT INTO files (device, inode, head, digest, read, reached) VALUES (?, ?, ?, ?, 0, 0)",
            (*one.identity, *read_head(one, HEAD_BYTES)),
        )
        self.files[cursor.lastrowid or 0] = one

    def _forget(self, numbers: Sequence[int]) -> None:
        """Drop some files, and the calls that have no lines left."""
        for number in numbers:
            calls = self._database.execute(
                "SELECT id, number, omitted FROM calls WHERE number IN (SELECT call FROM lines WHERE file = ?)",
                (number,),
            ).fetchall()
            # Lines are missing now, so decide again which requests to omit.
            thinned = [(call,) for _, call, omitted in calls if omitted is not None]
            self._database.executemany("UPDATE lines SET omitted = 0 WHERE call = ? AND omitted = 1", thinned)
            self._database.executemany("UPDATE calls SET omitted = NULL WHERE number = ?", thinned)
            for table in ("lines", "notices"):
                self._database.execute(f"DELETE FROM {table} WHERE file = ?", (number,))  # noqa: S608 - our own names
            self._database.execute("DELETE FROM files WHERE number = ?", (number,))
            for first in range(0, len(calls), _BATCH_LINES):
                self._join({id: [] for id, *_ in calls[first : first + _BATCH_LINES]})

    def _read(self) -> tuple[list[PositionedLine], int]:
        """Return the next lines, and the number of lines that were read, including unreadable lines.

        A call's legs may be in several files, so the file with the oldest lines is read first.
        """
        waiting: list[tuple[float, int, int]] = self._database.execute(
            "SELECT reached, number, read FROM files"
        ).fetchall()
        heapq.heapify(waiting)
        placed: list[PositionedLine] = []
        count = 0
        while waiting and count < _BATCH_LINES:
            reached, number, since = heapq.heappop(waiting)
            if number not in self.files or since >= self.files[number].size:
                continue
            file = self.files[number]
            texts, read, searched = read_appended(file, since, searched=self._searched_in(file, since))
            self._searched[file.identity] = read, searched
            if not texts:
                continue
            count += len(texts)
            reading = Reading()
            for offset, text in texts:
                line = parse_line(text.decode("utf-8", "replace"), reading)
                if line is not None:
                    placed.append(PositionedLine(LinePosition(number, offset, len(text)), line))
                    reached = line.at
            self._database.execute(
                "UPDATE files SET read = ?, reached = ?, unreadable = unreadable + ?, newer = newer + ?, "
                "head = ?, digest = ? WHERE number = ?",
                # Compute the digest again, because a file that was shorter than `HEAD_BYTES` may have grown.
                (read, reached, reading.unreadable, reading.newer, *read_head(file, min(HEAD_BYTES, read)), number),
            )
            heapq.heappush(waiting, (reached, number, read))
        return placed, count

    # Calls.

    def _write(self, placed: Iterable[PositionedLine]) -> None:
        calls: dict[str, list[PositionedLine]] = {}
        notices: list[tuple[object, ...]] = []
        for one in placed:
            line = one.line
            if line.call is not None:
                calls.setdefault(line.call, []).append(one)
            if isinstance(line, ActedLine):
                notices.append((line.event, line.at, *one.place, line.action))
            elif isinstance(line, RejectedLine):
                notices.append((line.event, line.at, *one.place, line.reason.value))
                if line.call is None:
                    notices.append((STRAY, line.at, *one.place, line.reason.value))
        self._database.executemany("INSERT OR REPLACE INTO notices VALUES (?, ?, ?, ?, ?, ?)", notices)
        self._join(calls)

    def _join(self, new: dict[str, list[PositionedLine]]) -> None:
        """Update the rows of calls that have new lines."""
        known: dict[str, _KnownCall] = {}
        ids = list(new)
        for first in range(0, len(ids), _MAX_VALUES):
            some = ids[first : first + _MAX_VALUES]
            marks = ", ".join("?" * len(some))
            query = f"SELECT id, number, started, facets, omitted FROM calls WHERE id IN ({marks})"  # noqa: S608 - marks only
            known |= {id: _KnownCall(*others) for id, *others in self._database.execute(query, some)}
        lines: list[Line] = []
        before: dict[str, list[PositionedLine]] = {}
        for id, placed in new.items():
            if id in known:
                places = self._database.execute(KEPT_POSITIONS, known[id][:1]).fetchall()
                before[id] = [*read_lines(self.files, map(LinePosition._make, places))]
            # Sort the lines: a rotated file's last lines may be read after the first lines of its successor.
            own = sorted([*before.get(id, ()), *placed], key=lambda one: one.place)
            lines += [one.line for one in own]
        joined = join(lines, parse_omitted({id: one.omitted for id, one in known.items()})).calls
        (following,) = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM calls").fetchone()
        numbers = {id: known[id].number for id in known}
        for id in ids:
            if id not in numbers:
                numbers[id], following = following, following + 1
        thinned = {id: {*map(_identity, call.lines)} for id, call in joined.items() if call.omitted.requests}
        self._database.executemany(
            "UPDATE lines SET omitted = 1 WHERE call = ? AND omitted = 0 AND file = ? AND offset = ?",
            [
                (numbers[id], *one.place[:2])
                for id, kept in thinned.items()
                for one in before.get(id, ())
                if _identity(one.line) not in kept
            ],
        )
        self._database.executemany(
            "INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)",
            [
                (numbers[id], id in thinned and _identity(one.line) not in thinned[id], *one.place)
                for id, placed in new.items()
                for one in placed
            ],
        )
        self._replace(numbers, known, joined)

    def _replace(self, numbers: dict[str, int], known: dict[str, _KnownCall], joined: dict[str, TracedCall]) -> None:
        rows = {id: row_of(call) for id, call in joined.items()}
        found = {id: facets_of(row) for id, row in rows.items()}
        facets = self._numbers_of({facet for these in found.values() for facet in these})
        counts = Counter[int]()
        dropped: list[tuple[int, float, int]] = []
        for number, started, text, _ in known.values():
            if started is not None:
                dropped += [(facet, started, number) for facet in json.loads(text or "[]")]
        counts.subtract(facet for facet, _, _ in dropped)
        added = [(facets[one], rows[id]["started_at"], numbers[id]) for id, these in found.items() for one in these]
        counts.update(facet for facet, _, _ in added)
        self._database.executemany("DELETE FROM marks WHERE facet = ? AND started = ? AND call = ?", dropped)
        self._database.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", added)
        self._database.executemany(
            "UPDATE facets SET calls = calls + ? WHERE number = ?",
            [(count, number) for number, count in counts.items() if count],
        )
        self._database.executemany(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    numbers[id],
                    id,
                    row["started_at"],
                    row["last_at"],
                    json.dumps(row, separators=(",", ":")),
                    json.dumps([facets[one] for one in found[id]], separators=(",", ":")),
                    json.dumps(asdict(omitted)) if (omitted := joined[id].omitted).requests else None,
                )
                for id, row in rows.items()
            ],
        )
        for id in numbers.keys() - rows.keys():
            # The call has no lines left, or no lines other than operator actions.
            self._database.execute("DELETE FROM calls WHERE number = ?", (numbers[id],))
            if self._database.execute("SELECT 1 FROM lines WHERE call = ?", (numbers[id],)).fetchone() is not None:
                self._database.execute("INSERT INTO calls (number, id) VALUES (?, ?)", (numbers[id], id))

    def _numbers_of(self, wanted: set[Facet]) -> dict[Facet, int]:
        self._database.executemany("INSERT OR IGNORE INTO facets (kind, value) VALUES (?, ?)", sorted(wanted))
        return {
            (kind, value): self._database.execute(
                "SELECT number FROM facets WHERE kind = ? AND value = ?", (kind, value)
            ).fetchone()[0]
            for kind, value in wanted
        }
