"""Limit log lines that clients can cause: a few a minute, then one that counts those left out."""

import logging
from collections.abc import Callable
from typing import Any, Final

from roundtrip.system import SYSTEM

_LINES: Final = 5
_WINDOW_SECONDS: Final = 60.0
_MAX_KEYS: Final = 256


class _Budget:
    """Counter of the lines of each kind within a window of time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinds: dict[object, tuple[float, int]] = {}

    def spend(self, kind: object) -> int | None:
        """Return None if a line of this kind must be left out, else how many were left out since the last window."""
        now = self._clock()
        since, count = self._kinds.get(kind, (now, 0))
        left_out = 0
        if now - since >= _WINDOW_SECONDS:
            left_out = max(0, count - _LINES)
            since, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _MAX_KEYS:
            self._kinds.clear()
        self._kinds[kind] = since, count + 1
        return left_out if count < _LINES else None


class LimitedLog:
    """Logger that writes each line at most five times a minute."""

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = SYSTEM.monotonic) -> None:
        self._logger = logger
        self._budget = _Budget(clock)

    def warning(self, message: str, *args: Any) -> None:
        """Log a warning, unless there were too many of this message; `args` do not tell messages apart."""
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        left_out = self._budget.spend(message)
        if left_out:
            self._logger.warning("%s (%d more like this were left out)", message % args, left_out)
        elif left_out is not None:
            self._logger.warning(message, *args)


LOG: Final = LimitedLog(logging.getLogger("roundtrip"))
"""Log of lines that clients can cause."""


class LimitedFilter(logging.Filter):
    """Filter that passes at most five warnings or errors a minute of each place in the code, or each first line."""

    def __init__(self, *, clock: Callable[[], float] = SYSTEM.monotonic) -> None:
        super().__init__()
        self._budget = _Budget(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be written."""
        if record.levelno < logging.WARNING:
            return True
        # All lines of asyncio come from one place; the texts of other loggers may contain values.
        first_line = str(record.msg).partition("\n")[0] if record.name == "asyncio" else ""
        left_out = self._budget.spend((record.pathname, record.lineno, first_line))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like this were left out)"
            record.args = ()
        return left_out is not None
