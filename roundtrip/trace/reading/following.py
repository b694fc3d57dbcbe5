"""Following transcripts as they grow."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from roundtrip.trace.reading.transcripts import (
    FileIdentity,
    Reading,
    identity_of,
    parse_line,
    rotated_files,
    transcripts_in,
)
from roundtrip.trace.writing.lines import Line

_CHUNK_BYTES: Final = 1024 * 1024
_LINGER_POLLS: Final = 100
"""Number of further polls for a rotated file. A process that has the file open may still write a line to it."""


@dataclass(slots=True)
class _OpenFile:
    """An open file that is read while it grows."""

    identity: FileIdentity
    file: BinaryIO
    partial: bytes = b""
    """The start of an incomplete line."""
    lingers: int | None = None
    """Number of polls before the file is closed; None while no newer file has taken its path."""


class Follower:
    """Reader for lines that are appended to transcripts, and for new files in directories.

    A named file need not exist yet. `reading` counts the lines that cannot be read.
    """

    def __init__(self, names: Sequence[str | Path]) -> None:
        self._names = [Path(name) for name in names]
        self._files: dict[Path, list[_OpenFile]] = {}
        self.reading = Reading()

    @property
    def open_files(self) -> int:
        """Count the open files."""
        return sum(map(len, self._files.values()))

    def poll(self) -> Iterator[Line]:
        """Yield the lines that were appended since the last poll. The first poll yields all lines."""
        for name in self._names:
            for path in transcripts_in(name):
                self._files.setdefault(path, [])
        for path, files in self._files.items():
            self._open_new(path, files)
            for opened in [*files]:
                yield from self._read(opened)
                if opened.lingers is not None:
                    opened.lingers -= 1
                    if opened.lingers < 0:
                        opened.file.close()
                        files.remove(opened)

    def close(self) -> None:
        """Close all files."""
        for files in self._files.values():
            for opened in files:
                opened.file.close()
            files.clear()

    def _open_new(self, path: Path, files: list[_OpenFile]) -> None:
        """Open the file at a path, and any files that were rotated from this path since the last poll, in order."""
        current = identity_of(path)
        if current is None or (files and files[-1].identity == current):
            return
        candidates = [*rotated_files(path), path]
        known = {opened.identity for opened in files}
        places = [place for place, candidate in enumerate(candidates) if identity_of(candidate) in known]
        for candidate in candidates[max(places) + 1 :] if places else candidates:
            self._open(candidate, files)

    def _open(self, path: Path, files: list[_OpenFile]) -> None:
        try:
            file = path.open("rb")
        except OSError:
            # The file was just rotated. The next poll finds it under the new name.
            return
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if any(opened.identity == identity for opened in files):
            file.close()
            return
        for earlier in files:
            earlier.lingers = _LINGER_POLLS if earlier.lingers is None else earlier.lingers
        files.append(_OpenFile(identity, file))

    def _read(self, opened: _OpenFile) -> Iterator[Line]:
        if os.fstat(opened.file.fileno()).st_size < opened.file.tell():
            # The file was truncated.
            opened.file.seek(0)
            opened.partial = b""
        while chunk := opened.file.read(_CHUNK_BYTES):
            *whole, opened.partial = (opened.partial + chunk).split(b"\n")
            for text in whole:
                line = parse_line(text.decode("utf-8", "replace"), self.reading)
                if line is not None:
                    # Do not keep the lines, because they are yielded.
                    self.reading.lines.clear()
                    yield line
