"""Read transcripts from files: complete lines of this format, and the number of others."""

import gc
import glob
import json
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from pydantic import ValidationError

from roundtrip.trace.writing.lines import FORMAT, LINE, Line
from roundtrip.trace.writing.unwritten import flush_all

_ROTATED: Final = re.compile(r"\.(\d+)$")
_TRANSCRIPTS: Final = "*.jsonl"

_MAX_LINE_CHARS: Final = 64 * 1024 * 1024

FileIdentity = tuple[int, int]
"""Device and inode of a file."""


class NoTranscript(Exception):
    """A named transcript does not exist or cannot be read; the message has the cure."""


@dataclass(slots=True)
class Reading:
    """Lines of some files in order, and the number of lines that could not be read."""

    lines: list[Line] = field(default_factory=list[Line])
    unreadable: int = 0
    newer: int = 0
    """Lines of a later format."""

    @property
    def lost(self) -> int:
        """Return the number of lines that could not be read."""
        return self.unreadable + self.newer


def files_of(names: Sequence[str | Path]) -> list[Path]:
    """Return the files of some names, each after the files that were rotated out of it, oldest first.

    The name of a directory means the transcripts in it (files named `*.jsonl`).

    Raises:
        NoTranscript: One of them does not exist, or is a directory without transcripts.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            raise NoTranscript(f"there is no file {str(path)!r}; record with Server(trace=...) or ROUNDTRIP_TRACE")
        inside = transcripts_in(path)
        if not inside:
            raise NoTranscript(f"the directory {str(path)!r} holds no transcript ({_TRANSCRIPTS})")
        for file in inside:
            found += [*rotated_out_of(file), file]
    files: dict[Path, Path] = {}
    for path in found:
        # A link to one of them is no other file.
        other = files.setdefault(path.resolve(), path)
        if other.is_symlink() and not path.is_symlink():
            files[path.resolve()] = path
    return list(files.values())


def transcripts_in(path: Path) -> list[Path]:
    """Return the transcripts in a directory: files, and no pipes, which would block their reader; or another path."""
    return [file for file in sorted(path.glob(_TRANSCRIPTS)) if file.is_file()] if path.is_dir() else [path]


def rotated_out_of(path: Path) -> list[Path]:
    """Return the files that had a transcript's name before, the oldest first."""
    rotated: list[tuple[int, Path]] = []
    for other in path.parent.glob(f"{glob.escape(path.name)}.*"):
        number = _ROTATED.search(other.name)
        if number is not None and other.name == f"{path.name}.{number[1]}" and other.is_file():
            rotated.append((int(number[1]), other))
    return [other for _, other in sorted(rotated, reverse=True)]


def identity_of(path: Path) -> FileIdentity | None:
    """Return what tells a file from those that had its name before; None if it cannot be found."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_files(files: Iterable[Path]) -> Reading:
    """Read the lines of some files, also those that recorders of this process have not written yet.

    Raises:
        NoTranscript: One of them cannot be read.
    """
    flush_all()
    reading = Reading()
    with without_collection():
        for file in files:
            try:
                with file.open(encoding="utf-8", errors="replace", newline="\n") as opened:
                    while text := opened.readline(_MAX_LINE_CHARS):
                        is_tail = not text.endswith("\n") and len(text) < _MAX_LINE_CHARS
                        if not is_tail or is_whole(text):
                            parse_line(text, reading)
            except OSError as error:
                raise NoTranscript(f"cannot read {str(file)!r}: {error.strerror}") from error
    return reading


@contextmanager
def without_collection() -> Generator[None]:
    """Disable garbage collection: lines are many objects without cycles, and a search takes as long as reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_line(text: str, into: Reading) -> Line | None:
    """Parse one line and add it to `into`, which counts a line that cannot be read; blank lines are ignored."""
    if not text.strip():
        return None
    try:
        line = LINE.validate_json(text)
    except ValidationError:
        found = _read_slowly(text, into)
        if found is None:
            return None
        line = found
    into.lines.append(line)
    return line


def is_whole(text: str) -> bool:
    """Return True if the text behind the last newline is a line; otherwise it is still being written, or torn."""
    return text.endswith("}") and parse_line(text, Reading()) is not None


def _read_slowly(text: str, into: Reading) -> Line | None:
    """Parse a line that pydantic's parser rejects, for example one with lone surrogates, which clients may send."""
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError):
        into.unreadable += 1
        return None
    version = cast("dict[str, object]", data).get("v") if isinstance(data, dict) else None
    if isinstance(version, int) and version > FORMAT:
        into.newer += 1
        return None
    if isinstance(data, dict):
        # Names are looked up, and shown; values stay as they are.
        members = cast("dict[str, object]", data).items()
        data = {
            name: member.encode("utf-8", "replace").decode() if isinstance(member, str) else member
            for name, member in members
        }
    try:
        return LINE.validate_python(data)
    except (ValidationError, RecursionError):
        into.unreadable += 1
        return None
