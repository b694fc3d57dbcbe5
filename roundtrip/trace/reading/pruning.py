"""Choose transcripts to delete, by age and by size. Files are deleted as a whole, the oldest first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.trace.reading.transcripts import Reading, files_of, parse_line

__all__ = ["IDLE_SECONDS", "KEPT_NAME", "Pruned", "prune"]

IDLE_SECONDS: Final = 3600.0
"""A file is deleted only if it was not written for this time: a recorder that has it open finds out by then."""
KEPT_NAME: Final = "audit.jsonl"
"""The log of operators' actions, which is kept."""


_LOOKED_AT: Final = 20
_MAX_LINE_CHARS: Final = 1024 * 1024


class Pruned(NamedTuple):
    """Files to delete, and what remains."""

    files: list[Path]
    freed: int
    """The bytes that they have."""
    kept: int
    """The bytes of all other files."""


def prune(
    names: Sequence[str | Path], *, before: float | None, max_bytes: int | None, now: float, audit: Path | None = None
) -> Pruned:
    """Choose the files that were last written before a time, and further old ones until the rest is small enough.

    Args:
        names: Transcripts, and directories of them.
        before: The time.
        max_bytes: The size of the rest.
        now: The time now.
        audit: The audit log, if it has another name or place.

    Raises:
        NoTranscript: A name means no file.
    """
    audit = None if audit is None else audit.resolve()
    found = [(about.st_mtime, path, about.st_size) for path in files_of(names) for about in [path.stat()]]
    kept = sum(size for _, _, size in found)
    chosen = Pruned([], 0, kept)
    for written, path, size in sorted(found):
        is_old = before is not None and written < before
        is_too_much = max_bytes is not None and chosen.kept > max_bytes
        is_kept = path.name == KEPT_NAME or path.resolve() == audit or not _is_transcript(path)
        if not is_kept and now - written > IDLE_SECONDS and (is_old or is_too_much):
            chosen = Pruned([*chosen.files, path], chosen.freed + size, chosen.kept - size)
    return chosen


def _is_transcript(path: Path) -> bool:
    """Return True if one of the first lines of a file is one of a transcript, and none of a log of actions."""
    reading = Reading()
    with path.open(encoding="utf-8", errors="replace") as file:
        for _ in range(_LOOKED_AT):
            # The first line may be torn.
            line = parse_line(file.readline(_MAX_LINE_CHARS), reading)
            if line is not None or reading.newer:
                return line is None or line.event != "acted"
    return False
