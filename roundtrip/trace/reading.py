"""Reading transcripts from files: whole lines of this format, and how many others there were."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError

from roundtrip.recording.lines import FORMAT, LINE, Line

__all__ = ["NoTranscript", "Reading", "files_of", "parse_line", "read_files"]

_ROTATED: Final = re.compile(r"\.(\d+)$")
_SUFFIX: Final = ".jsonl"
_MAX_LINE: Final = 64 * 1024 * 1024
"""More characters in one line are no line of ours."""


class NoTranscript(Exception):
    """There is nothing to read where a transcript was named; the message says what would help."""


@dataclass(slots=True)
class Reading:
    """The lines of some files, in their order, and the number of those that could not be read."""

    lines: list[Line] = field(default_factory=list[Line])
    unreadable: int = 0
    newer: int = 0
    """Lines of a later format."""


def files_of(names: Sequence[str | Path]) -> list[Path]:
    """The files that some names stand for, each with those that were rotated out of it, oldest first.

    A directory stands for the transcripts in it (`*.jsonl`).

    Raises:
        NoTranscript: One of them does not exist, or is a directory without transcripts.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(path.glob(f"*{_SUFFIX}"))
            if not inside:
                raise NoTranscript(f"the directory {str(path)!r} holds no transcript (*{_SUFFIX})")
            for file in inside:
                found.update(dict.fromkeys(_with_rotated(file)))
        elif path.exists():
            found.update(dict.fromkeys(_with_rotated(path)))
        else:
            raise NoTranscript(f"there is no file {str(path)!r}; record with Server(trace=...) or ROUNDTRIP_TRACE")
    return list(found)


def _with_rotated(path: Path) -> list[Path]:
    rotated: list[tuple[int, Path]] = []
    for other in path.parent.glob(f"{_escaped(path.name)}.*"):
        number = _ROTATED.search(other.name)
        if number is not None and other.name == f"{path.name}.{number[1]}":
            rotated.append((int(number[1]), other))
    return [other for _, other in sorted(rotated, reverse=True)] + [path]


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def read_files(files: Iterable[Path]) -> Reading:
    """The lines of some files.

    Raises:
        NoTranscript: One of them cannot be read.
    """
    reading = Reading()
    for file in files:
        try:
            with file.open(encoding="utf-8", errors="replace", newline="\n") as opened:
                for text in _lines(opened):
                    parse_line(text, reading)
        except OSError as error:
            raise NoTranscript(f"cannot read {str(file)!r}: {error.strerror}") from error
    return reading


def _lines(opened: Any) -> Iterator[str]:
    while text := cast("str", opened.readline(_MAX_LINE)):
        yield text


def parse_line(text: str, into: Reading) -> Line | None:
    """Take one line in, if it can be read; a line that is blank counts as nothing at all."""
    if not text.strip():
        return None
    try:
        # Not pydantic's parser, which refuses the lone surrogates that clients may send.
        data: object = json.loads(text)
    except (ValueError, RecursionError):
        into.unreadable += 1
        return None
    version = cast("dict[str, object]", data).get("v") if isinstance(data, dict) else None
    if isinstance(version, int) and version > FORMAT:
        into.newer += 1
        return None
    try:
        line = LINE.validate_python(data)
    except ValidationError:
        into.unreadable += 1
        return None
    into.lines.append(line)
    return line
