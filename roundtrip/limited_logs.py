"""Rate limits for log lines that clients can cause: a few lines per minute, then a count of the omitted lines."""

import logging
from collections.abc import Callable
from typing import Any, Final

from roundtrip.system import SYSTEM

_MAX_LINES: Final = 5
_WINDOW_SECONDS: Final = 60.0
_MAX_KEYS: Final = 256


class _Budget:
    """Count of log lines per kind within a time window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinds: dict[object, tuple[float, int]] = {}

    def spend(self, kind: object) -> int | None:
        """Return the number of lines omitted in the previous window, or None if this line must be omitted."""
        now = self._clock()
        since, count = self._kinds.get(kind, (now, 0))
        left_out = 0
        if now - since >= _WINDOW_SECONDS:
            left_out = max(0, count - _MAX_LINES)
            since, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _MAX_KEYS:
            self._kinds.clear()
        self._kinds[kind] = since, count + 1
        return left_out if count < _MAX_LINES else None


class LimitedLog:
    """Logger that writes the same message at most five times per minute."""

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = SYSTEM.monotonic) -> None:
        self._logger = logger
        self._budget = _Budget(clock)

    def warning(self, message: str, *args: Any) -> None:
        """Log a warning, unless this message has reached its limit. Messages that differ only in `args` share one
        limit.
        """
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        left_out = self._budget.spend(message)
        if left_out:
            self._logger.warning("%s (%d more lines like this were left out)", message % args, left_out)
        elif left_out is not None:
            self._logger.warning(message, *args)


LOG: Final = LimitedLog(logging.getLogger("roundtrip"))
"""Rate-limited log for lines that clients can cause."""


class LimitedFilter(logging.Filter):
    """Filter that passes at most five warnings or errors per minute from each source line.

    For asyncio, messages with different first lines have separate limits.
    """

    def __init__(self, *, clock: Callable[[], float] = SYSTEM.monotonic) -> None:
        super().__init__()
        self._budget = _Budget(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record should be written."""
        if record.levelno < logging.WARNING:
            return True
        # asyncio logs all its messages from one source line. For other loggers, ignore the text, which may contain
        # values.
        first_line = str(record.msg).partition("\n")[0] if record.name == "asyncio" else ""
        left_out = self._budget.spend((record.pathname, record.lineno, first_line))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more lines like this were left out)"
            record.args = ()
        return left_out is not None
