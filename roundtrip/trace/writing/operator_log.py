"""Write the actions of operators on stored calls to an operator log, whose lines readers of transcripts understand.

An action that cannot be logged is not done: `OperatorLog.open` comes before it, and the line after it.
"""

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from errno import ENOENT
from pathlib import Path
from typing import Final, Literal

from roundtrip.errors import RoundtripError
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.files import LineFile
from roundtrip.trace.writing.lines import FORMAT, OperatorAction
from roundtrip.trace.writing.names import OPERATOR_LOG_VARIABLE, TRACE_VARIABLE

OperatorProgram = Literal["command", "ui"]
"""The program of an operator, as the `instance` of a line."""
WriteOutcome = Callable[[Literal["done", "rejected"], str], None]
"""Writes the line of an action with its outcome, and the reason for it or the name of its question."""

_NAME: Final = "operators.jsonl"
_MAX_NAME_CHARS: Final = 256


class OperatorLogUnwritable(RoundtripError):
    """The operator log cannot be written; the text says why, and if the action was done."""


def operator_log_path(given: str | None, transcripts: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Return the file of the operator log; None if no option, variable or transcript says where it is.

    Args:
        given: The option of the user.
        transcripts: The files and directories that the user named.
        environment: The variables of the process.
    """
    if place := given or environment.get(OPERATOR_LOG_VARIABLE):
        return Path(place)
    beside = transcripts[0] if transcripts else environment.get(TRACE_VARIABLE)
    if not beside:
        return None
    path = Path(beside)
    is_folder = beside.endswith(("/", os.sep)) or path.is_dir()
    return (path if is_folder else path.parent) / _NAME


def user_of_system() -> str:
    """Return the name of the user of the operating system, whatever the environment says."""
    try:
        import pwd
    except ImportError:  # Windows
        import getpass

        return getpass.getuser()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


class OperatorLog:
    """Operator log of one operator. Several processes may write to its file, which only its owner can read.

    Args:
        path: The file; None to log nothing.
        program: The program of the operator.
        by: The name of the operator.
        system: The clock.
    """

    def __init__(self, path: Path | None, *, program: OperatorProgram, by: str, system: System = SYSTEM) -> None:
        self.path = path
        self._program = program
        self._by = _plain(by)[:_MAX_NAME_CHARS]
        self._system = system

    @contextmanager
    def open(self, call: str, tool: str | None, action: OperatorAction) -> Generator[WriteOutcome]:
        """Open the file for the line of an action that is not done yet.

        In the `with` block, call the function once with the outcome, and the reason for a rejection, or the name of the
        answered question; never with a value of the call.

        Raises:
            OperatorLogUnwritable: The file cannot be opened, or the line cannot be written.
        """
        if self.path is None:
            yield lambda outcome, why: None
            return
        head = {"instance": self._program, "call": _plain(call)[:_MAX_NAME_CHARS]}
        head |= {} if tool is None else {"tool": _plain(tool)}
        # Never rotated: a log of who did what must not lose its oldest lines.
        file = LineFile(self.path, max_bytes=0, keep=0)

        def write(outcome: Literal["done", "rejected"], why: str) -> None:
            line = {"v": FORMAT, "event": "acted", "at": round(self._system.time(), 6), **head}
            line |= {"action": action, "by": self._by, "outcome": outcome, "why": _plain(why)}
            text = json.dumps(line, separators=(",", ":"))
            with self._writable(f"the action was {outcome} all the same, and its line is missing"):
                file.write(text.encode("ascii") + b"\n")

        with self._writable(f"nothing was done; name another file with --operator-log or {OPERATOR_LOG_VARIABLE}"):
            if not self.path.parent.is_dir():
                # A mistyped folder must not get a second log.
                raise FileNotFoundError(ENOENT, "its folder does not exist")
            file.open()
        with closing(file):
            yield write

    @contextmanager
    def _writable(self, effect: str) -> Generator[None]:
        """Raise `OperatorLogUnwritable` for errors of the file, which says what they mean for the action."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OperatorLogUnwritable(
                f"the operator log {str(self.path)!r} must be writable, got: {reason}; {effect}"
            ) from error


def _plain(text: str) -> str:
    """Return a text without lone surrogates, which readers of JSON reject."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
