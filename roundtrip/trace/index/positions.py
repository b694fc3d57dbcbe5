"""Reading transcript lines: at known positions, or all lines that were appended after a position."""

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from roundtrip.trace.reading.transcripts import (
    FileIdentity,
    NoTranscript,
    Reading,
    files_of,
    is_whole,
    parse_line,
    rotated_files,
    transcripts_in,
)
from roundtrip.trace.writing.lines import Line

_CHUNK_BYTES: Final = 256 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
HEAD_BYTES: Final = 256
"""Number of bytes to compare at a file's start. Comparing inodes is not enough, because a new file can have an old
file's inode.
"""


class TranscriptFile(NamedTuple):
    """An existing transcript."""

    path: Path
    identity: FileIdentity
    size: int


class LinePosition(NamedTuple):
    """Position of a line."""

    file: int
    """The file's number in the index."""
    offset: int
    length: int


class PositionedLine(NamedTuple):
    """A line and its position."""

    place: LinePosition
    line: Line


def find_files(names: Sequence[Path]) -> list[TranscriptFile]:
    """Return the existing transcripts for some names. Each transcript comes after its rotated files."""
    found: dict[FileIdentity, TranscriptFile] = {}
    for name in names:
        for path in transcripts_in(name):
            for one in [*rotated_files(path), path]:
                try:
                    status = one.stat()
                except OSError:
                    # The file does not exist yet, or it was just rotated.
                    continue
                identity = (status.st_dev, status.st_ino)
                found.setdefault(identity, TranscriptFile(one, identity, status.st_size))
    return list(found.values())


def check_names(names: Sequence[Path]) -> None:
    """Check that the named files exist; directories may be empty.

    Raises:
        NoTranscript: A file does not exist, or is a pipe.
    """
    for name in names:
        if not name.is_dir():
            files_of([name])
            if not name.is_file():
                raise NoTranscript(f"an index needs regular files, got {str(name)!r}; name a transcript or a folder")


class AppendedLines(NamedTuple):
    """Lines appended to a file."""

    lines: list[tuple[int, bytes]]
    """The lines with their offsets."""
    read: int
    """The offset after the last line."""
    searched: int
    """The offset up to which the file was searched for a newline."""


def read_head(file: TranscriptFile, size: int) -> tuple[int, bytes]:
    """Return the size and digest of a file's first bytes."""
    with _open_file(file) as opened:
        head = opened.read(size) if opened is not None else b""
    return len(head), sha256(head).digest()


def read_appended(found: TranscriptFile, since: int, *, searched: int) -> AppendedLines:
    """Return the lines that follow an offset.

    Args:
        found: The file.
        since: The offset.
        searched: The offset up to which an earlier search found no newline; 0 if unknown.
    """
    with _open_file(found) as file:
        if file is None:
            return AppendedLines([], since, since)
        at = max(since, searched)
        while b"\n" not in (more := os.pread(file.fileno(), _CHUNK_BYTES, at)):
            at += len(more)
            if at - since > _MAX_LINE_BYTES:
                # The text is too long for a transcript line, so skip the part that was read. The rest will also be
                # unreadable.
                return AppendedLines([(since, b"?")], at, at)
            if not more:
                tail = _whole_tail(file, since, at)
                return AppendedLines(tail, at if tail else since, at)
        data = os.pread(file.fileno(), at - since, since) + more
    lines: list[tuple[int, bytes]] = []
    at = since
    for text in data[: data.rindex(b"\n")].split(b"\n"):
        lines.append((at, text))
        at += len(text) + 1
    return AppendedLines(lines, at, at)


def read_lines(files: Mapping[int, TranscriptFile], places: Iterable[LinePosition]) -> Iterator[PositionedLine]:
    """Yield the lines at some positions. Skip the lines in deleted files.

    Args:
        files: The files by their numbers in the index.
        places: The positions. For consecutive positions in the same file, the file is opened only once.
    """
    for number, run in groupby(places, key=lambda place: place.file):
        with _open_file(files.get(number)) as file:
            if file is None:
                continue
            for place in run:
                text = os.pread(file.fileno(), place.length, place.offset).decode("utf-8", "replace")
                line = parse_line(text, Reading())
                if line is not None:
                    yield PositionedLine(place, line)


@contextmanager
def _open_file(found: TranscriptFile | None) -> Generator[BinaryIO | None]:
    """Open a file for a `with` block. Yield None if the file was deleted or replaced by another file."""
    if found is None:
        yield None
        return
    try:
        file = found.path.open("rb")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise NoTranscript(f"cannot read {str(found.path)!r}: {error.strerror}") from error
    with file:
        status = os.fstat(file.fileno())
        yield file if (status.st_dev, status.st_ino) == found.identity else None


def _whole_tail(file: BinaryIO, since: int, end: int) -> list[tuple[int, bytes]]:
    """Return the text after the last newline if it is a complete line."""
    if end == since or os.pread(file.fileno(), 1, end - 1) != b"}":
        return []
    tail = os.pread(file.fileno(), end - since, since)
    return [(since, tail)] if is_whole(tail.decode("utf-8", "replace")) else []
