"""Deleting transcripts by age and size: whole files, oldest first."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.trace.reading.transcripts import Reading, files_of, parse_line

IDLE_SECONDS: Final = 3600.0
"""A file can be deleted only if it was last written at least this many seconds ago. A recorder that still has the file
open notices the deletion within this time.
"""
_OPERATOR_LOG_NAME: Final = "operators.jsonl"
"""The operator log, which is never deleted."""
_MAX_CHECKED_LINES: Final = 20
_MAX_LINE_CHARS: Final = 1024 * 1024


class PruningResult(NamedTuple):
    """The deleted files, the number of bytes freed, and the number of bytes kept."""

    files: list[Path]
    freed: int
    """Bytes in the deleted files."""
    kept: int
    """Bytes in all other files."""


def prune(
    names: Sequence[str | Path],
    *,
    before: float | None,
    max_bytes: int | None,
    clock: Callable[[], float],
    operator_log: Path | None = None,
    is_rehearsal: bool = False,
) -> PruningResult:
    """Delete files that were last written before a time. Then delete the oldest files until the rest is small enough.

    Args:
        names: Transcripts, and directories that contain transcripts.
        before: The time; None to ignore the age of files.
        max_bytes: The maximum size of the remaining files; None for no limit.
        clock: A function that returns the current time.
        operator_log: The operator log, if its name or folder is not the default.
        is_rehearsal: True to return the same result without deleting any file.

    Raises:
        NoTranscript: A named file does not exist.
        OSError: A file cannot be read or deleted.
    """
    operator_log = None if operator_log is None else operator_log.resolve()
    found = [(about.st_mtime, path, about.st_size) for path in files_of(names) for about in [path.stat()]]
    pruned = PruningResult([], 0, sum(size for _, _, size in found))
    for written, path, size in sorted(found):
        is_old = before is not None and written < before
        is_too_much = max_bytes is not None and pruned.kept > max_bytes
        is_kept = path.name == _OPERATOR_LOG_NAME or path.resolve() == operator_log
        if is_kept or not (is_old or is_too_much) or not _is_transcript(path) or not _is_idle(path, clock()):
            continue
        if not is_rehearsal:
            path.unlink(missing_ok=True)
        pruned = PruningResult([*pruned.files, path], pruned.freed + size, pruned.kept - size)
    return pruned


def _is_idle(path: Path, now: float) -> bool:
    """Return True if no server has written to the file recently. This must be the last check before the deletion."""
    try:
        return now - path.stat().st_mtime > IDLE_SECONDS
    except FileNotFoundError:
        return False


def _is_transcript(path: Path) -> bool:
    """Return True if the file's first readable line is from a transcript and not from an operator log."""
    reading = Reading()
    with path.open(encoding="utf-8", errors="replace") as file:
        for _ in range(_MAX_CHECKED_LINES):
            # The first line may be incomplete.
            line = parse_line(file.readline(_MAX_LINE_CHARS), reading)
            if line is not None or reading.newer:
                return line is None or line.event != "acted"
    return False
