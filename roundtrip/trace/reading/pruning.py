"""Choose transcripts to delete, by age and by size. Files are deleted as a whole, the oldest first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.trace.reading.transcripts import files_of

__all__ = ["IDLE_SECONDS", "KEPT_NAME", "Pruned", "prune"]

IDLE_SECONDS: Final = 3600.0
"""A file is deleted only if it was not written for this time: a recorder that has it open finds out by then."""
KEPT_NAME: Final = "audit.jsonl"
"""The log of operators' actions, which is kept."""


class Pruned(NamedTuple):
    """Files to delete, and what remains."""

    files: list[Path]
    freed: int
    """The bytes that they have."""
    kept: int
    """The bytes of all other files."""


def prune(names: Sequence[str | Path], *, before: float | None, max_bytes: int | None, now: float) -> Pruned:
    """Choose the files that were last written before a time, and further old ones until the rest is small enough.

    Raises:
        NoTranscript: A name means no file.
    """
    found = [(about.st_mtime, path, about.st_size) for path in files_of(names) for about in [path.stat()]]
    kept = sum(size for _, _, size in found)
    chosen = Pruned([], 0, kept)
    for written, path, size in sorted(found):
        is_old = before is not None and written < before
        is_too_much = max_bytes is not None and chosen.kept > max_bytes
        if path.name != KEPT_NAME and now - written > IDLE_SECONDS and (is_old or is_too_much):
            chosen = Pruned([*chosen.files, path], chosen.freed + size, chosen.kept - size)
    return chosen
