"""Filters for calls. They test rows, with or without an index."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from roundtrip.trace.index.rows import Row, facets_of

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Conditions that must all hold for a call."""

    facets: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The accepted values for each facet kind. A value may contain wildcards."""
    since: float | None = None
    """The call's last line must have been written at this time or later."""
    before: float | None = None
    """The call must have begun before this time."""
    rounds: Callable[[int], bool] | None = None
    start: str = ""
    """The call's id must begin with this text."""

    @property
    def has_only_facets(self) -> bool:
        """Return True if the only conditions are on facets."""
        return self.since is None and self.before is None and self.rounds is None and not self.start

    def passing(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows that meet all conditions."""
        return (row for row in rows if self.passes(row))

    def passes(self, row: Row) -> bool:
        """Return True if the row meets all conditions."""
        if self.since is not None and row["last_at"] < self.since:
            return False
        if self.before is not None and row["started_at"] >= self.before:
            return False
        if self.rounds is not None and not self.rounds(row["rounds"]):
            return False
        if not row["call"].startswith(self.start):
            return False
        if not self.facets:
            return True
        own: dict[str, list[str]] = {}
        for kind, value in facets_of(row):
            own.setdefault(kind, []).append(value)
        return all(any(fits(value, wanted) for value in own.get(kind, ())) for kind, wanted in self.facets.items())


def fits(value: str | None, patterns: Sequence[str]) -> bool:
    """Return True if a value equals a pattern or matches it, or if there are no patterns."""
    return not patterns or (
        value is not None and any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)
    )


def time_of(text: str) -> float:
    """Convert an age (`10m`) or a date to seconds since the epoch.

    Raises:
        ValueError: The text is neither an age nor a date.
    """
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            # Use the local time zone, as for a date without a zone.
            return (datetime.now().astimezone() - timedelta(**{_UNITS[age[2]]: float(age[1])})).timestamp()
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is not a time; use an age (30s, 10m, 2h, 3d) or a date (2026-11-21, 2026-11-21T09:30)"
        ) from error
