"""Delete transcripts by age and by size: whole files, the oldest first."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.trace.reading.transcripts import Reading, files_of, parse_line

IDLE_SECONDS: Final = 3600.0
"""A file is deleted only if it was not written for this time: a recorder that has it open finds out by then."""
_KEPT_NAME: Final = "operators.jsonl"
"""The log of operators' actions, which is kept."""
_LOOKED_AT: Final = 20
_MAX_LINE_CHARS: Final = 1024 * 1024


class Pruned(NamedTuple):
    """Deleted files, and what remains."""

    files: list[Path]
    freed: int
    """The bytes that they had."""
    kept: int
    """The bytes of all other files."""


def prune(
    names: Sequence[str | Path],
    *,
    before: float | None,
    max_bytes: int | None,
    clock: Callable[[], float],
    operator_log: Path | None = None,
    is_rehearsal: bool = False,
) -> Pruned:
    """Delete the files that were last written before a time, and further old ones until the rest is small enough.

    Args:
        names: Transcripts, and directories of them.
        before: The time.
        max_bytes: The size of the rest.
        clock: Returns the time now.
        operator_log: The operator log, if it has another name or place.
        is_rehearsal: True to delete nothing, and return the same.

    Raises:
        NoTranscript: A name means no file.
        OSError: A file cannot be read or deleted.
    """
    operator_log = None if operator_log is None else operator_log.resolve()
    found = [(about.st_mtime, path, about.st_size) for path in files_of(names) for about in [path.stat()]]
    pruned = Pruned([], 0, sum(size for _, _, size in found))
    for written, path, size in sorted(found):
        is_old = before is not None and written < before
        is_too_much = max_bytes is not None and pruned.kept > max_bytes
        is_kept = path.name == _KEPT_NAME or path.resolve() == operator_log
        if is_kept or not (is_old or is_too_much) or not _is_transcript(path) or not _is_idle(path, clock()):
            continue
        if not is_rehearsal:
            path.unlink(missing_ok=True)
        pruned = Pruned([*pruned.files, path], pruned.freed + size, pruned.kept - size)
    return pruned


def _is_idle(path: Path, now: float) -> bool:
    """Return True if no server has written to a file for a while; asked last, as one may have done so meanwhile."""
    try:
        return now - path.stat().st_mtime > IDLE_SECONDS
    except FileNotFoundError:
        return False


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
