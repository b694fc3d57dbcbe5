"""Client failures: the exit codes of `roundtrip call`, and errors from transports."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import cast

from roundtrip.text import printable


class ExitCode(IntEnum):
    """Exit codes of `roundtrip call`."""

    COMPLETED = 0
    TOOL_FAILED = 1
    WRONG_USAGE = 2
    DECLINED = 3
    SERVER_ERROR = 4
    NO_CONNECTION = 5
    WAITING = 6


class CallFailed(Exception):
    """A call ended without a result. The message is safe to print."""

    def __init__(self, message: str, ending: ExitCode = ExitCode.WRONG_USAGE) -> None:
        super().__init__(printable(message))
        self.ending = ending


def innermost(error: Exception) -> Exception:
    """Return the first error that is inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


@contextmanager
def quiet() -> Generator[None]:
    """Hide the SDK's log lines from the terminal, because they contain unescaped text from the server."""
    swallow = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in ("mcp", "httpx2", "httpcore2", "client")]
    for logger in loggers:
        logger.addHandler(swallow)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(swallow)
