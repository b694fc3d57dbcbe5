"""Log lines that clients can cause: a few in each minute, and then how many were left out."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LimitedFilter", "LimitedLog"]

_LINES: Final = 5
_WINDOW_SECONDS: Final = 60.0
_MAX_KEYS: Final = 256


class _Budget:
    """Counts the lines of each kind within a window of time."""

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
    """A logger whose lines are written at most five times a minute each.

    Args:
        logger: Where the lines go.
        clock: Tells the seconds.
    """

    def __init__(self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
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


class LimitedFilter(logging.Filter):
    """Lets at most five warnings or errors a minute through from each place in the code, or with each first line."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._budget = _Budget(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be written."""
        if record.levelno < logging.WARNING:
            return True
        # asyncio's all come from one place; of others, values may be in the text.
        first_line = str(record.msg).partition("\n")[0] if record.name == "asyncio" else ""
        left_out = self._budget.spend((record.pathname, record.lineno, first_line))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like this were left out)"
            record.args = ()
        return left_out is not None
