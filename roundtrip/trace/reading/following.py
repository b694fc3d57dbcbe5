"""Transcripts as they grow: files that rotate, and files that appear later."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from roundtrip.trace.reading.transcripts import TRANSCRIPTS, Reading, parse_line, rotated_out_of
from roundtrip.trace.writing.lines import Line

__all__ = ["Follower"]

_CHUNK: Final = 1024 * 1024
_LINGER: Final = 100
"""Polls for which a file that was rotated is still read: whoever has it open may yet write a line to it."""

_Identity = tuple[int, int]


@dataclass(slots=True)
class _Opened:
    """One file that is read as it grows."""

    identity: _Identity
    file: BinaryIO
    partial: bytes = b""
    """The beginning of a line that is not whole yet."""
    lingers: int | None = None
    """For how many polls more; None while it has its name."""


@dataclass(slots=True)
class _Followed:
    """One name, the file that has it, and those that had it before."""

    path: Path
    opened: list[_Opened] = field(default_factory=list[_Opened])


class Follower:
    """Gives the lines that are appended to some transcripts, in directories also to those that are yet to come.

    A name need not exist yet. What could not be read is counted in `reading`.
    """

    def __init__(self, names: Sequence[str | Path]) -> None:
        self._names = [Path(name) for name in names]
        self._followed: dict[Path, _Followed] = {}
        self.reading = Reading()

    @property
    def open_files(self) -> int:
        """How many files it has open."""
        return sum(len(followed.opened) for followed in self._followed.values())

    def poll(self) -> Iterator[Line]:
        """The lines that are new since the last time; the first time, all that there are."""
        for name in self._names:
            for path in sorted(name.glob(TRANSCRIPTS)) if name.is_dir() else [name]:
                if path not in self._followed:
                    self._followed[path] = _Followed(path)
        for followed in self._followed.values():
            yield from self._poll_one(followed)

    def close(self) -> None:
        """Let go of all files."""
        for followed in self._followed.values():
            for opened in followed.opened:
                opened.file.close()
            followed.opened.clear()

    def _poll_one(self, followed: _Followed) -> Iterator[Line]:
        self._open_new(followed)
        for opened in [*followed.opened]:
            yield from self._read(opened)
            if opened.lingers is not None:
                opened.lingers -= 1
                if opened.lingers < 0:
                    opened.file.close()
                    followed.opened.remove(opened)

    def _open_new(self, followed: _Followed) -> None:
        """Open the file that has the name, and those that had it since the last time, in their order."""
        current = _identity_of(followed.path)
        last = followed.opened[-1] if followed.opened else None
        if current is None or (last is not None and last.identity == current):
            return
        candidates = [*rotated_out_of(followed.path), followed.path]
        known = {opened.identity for opened in followed.opened}
        places = [place for place, path in enumerate(candidates) if _identity_of(path) in known]
        for path in candidates[max(places) + 1 :] if places else candidates:
            self._open(followed, path)

    def _open(self, followed: _Followed, path: Path) -> None:
        try:
            file = path.open("rb")
        except OSError:
            # It was rotated this very moment, and will be found under its new name.
            return
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if any(opened.identity == identity for opened in followed.opened):
            file.close()
            return
        for earlier in followed.opened:
            earlier.lingers = _LINGER if earlier.lingers is None else earlier.lingers
        followed.opened.append(_Opened(identity, file))

    def _read(self, opened: _Opened) -> Iterator[Line]:
        if os.fstat(opened.file.fileno()).st_size < opened.file.tell():
            # Somebody emptied it.
            opened.file.seek(0)
            opened.partial = b""
        while chunk := opened.file.read(_CHUNK):
            *whole, opened.partial = (opened.partial + chunk).split(b"\n")
            for text in whole:
                line = parse_line(text.decode("utf-8", "replace"), self.reading)
                if line is not None:
                    # They are handed on, not kept.
                    self.reading.lines.clear()
                    yield line


def _identity_of(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
