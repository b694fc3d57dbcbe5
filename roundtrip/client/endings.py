"""How a call at the terminal can end, and what tells the shell so."""

from enum import IntEnum

from roundtrip.safe_text import printable

__all__ = ["CallFailed", "ExitCode"]


class ExitCode(IntEnum):
    """The exit code of `roundtrip call`."""

    COMPLETED = 0
    TOOL_FAILED = 1
    WRONG_USAGE = 2
    REFUSED = 3
    SERVER_ERROR = 4
    NO_CONNECTION = 5


class CallFailed(Exception):
    """The call has no result; the message says why and is fit for a terminal."""

    def __init__(self, message: str, ending: ExitCode = ExitCode.WRONG_USAGE) -> None:
        super().__init__(printable(message))
        self.ending = ending
