"""Reading transcript files: complete lines are parsed, and unreadable lines are counted."""

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
"""The device and inode of a file."""


class NoTranscript(Exception):
    """A named transcript that does not exist or cannot be read; the message says what to do."""


@dataclass(slots=True)
class Reading:
    """Lines from some files, in order, and counts of unreadable lines."""

    lines: list[Line] = field(default_factory=list[Line])
    unreadable: int = 0
    newer: int = 0
    """The number of lines in a later format."""

    @property
    def lost(self) -> int:
        """Count the unreadable lines."""
        return self.unreadable + self.newer


def files_of(names: Sequence[str | Path]) -> list[Path]:
    """Return the named files. A file comes after its rotated files, which are ordered from oldest to newest.

    A directory name stands for the transcripts in the directory (files named `*.jsonl`).

    Raises:
        NoTranscript: A file does not exist, or a directory has no transcripts.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            raise NoTranscript(f"there is no file {str(path)!r}; record with Server(trace=...) or ROUNDTRIP_TRACE")
        inside = transcripts_in(path)
        if not inside:
            raise NoTranscript(f"the directory {str(path)!r} has no transcripts ({_TRANSCRIPTS})")
        for file in inside:
            found += [*rotated_files(file), file]
    files: dict[Path, Path] = {}
    for path in found:
        # A symbolic link and its target count as one file.
        other = files.setdefault(path.resolve(), path)
        if other.is_symlink() and not path.is_symlink():
            files[path.resolve()] = path
    return list(files.values())


def transcripts_in(path: Path) -> list[Path]:
    """Return the transcripts in a directory; for a file, return the file itself. Leave out pipes, because reading a
    pipe can block.
    """
    return [file for file in sorted(path.glob(_TRANSCRIPTS)) if file.is_file()] if path.is_dir() else [path]


def rotated_files(path: Path) -> list[Path]:
    """Return a transcript's rotated files, oldest first."""
    rotated: list[tuple[int, Path]] = []
    for other in path.parent.glob(f"{glob.escape(path.name)}.*"):
        number = _ROTATED.search(other.name)
        if number is not None and other.name == f"{path.name}.{number[1]}" and other.is_file():
            rotated.append((int(number[1]), other))
    return [other for _, other in sorted(rotated, reverse=True)]


def identity_of(path: Path) -> FileIdentity | None:
    """Return the identity that distinguishes a file from earlier files with the same name; None for a missing file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_files(files: Iterable[Path]) -> Reading:
    """Read all lines from some files, after flushing this process's recorders.

    Raises:
        NoTranscript: A file cannot be read.
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
    """Disable garbage collection. Parsed lines contain no reference cycles, and collection would take as long as
    parsing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_line(text: str, into: Reading) -> Line | None:
    """Parse a line and add it to `into`. Unreadable lines are only counted, and blank lines are ignored."""
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
    """Return True if the text after the last newline is a complete line and not just the start of one."""
    return text.endswith("}") and parse_line(text, Reading()) is not None


def _read_slowly(text: str, into: Reading) -> Line | None:
    """Parse a line that Pydantic's parser rejects, for example because a client sent lone surrogates."""
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
        # Texts at the top level are keys and labels, so make them printable. Leave recorded values unchanged.
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
