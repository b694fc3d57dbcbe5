"""Write the actions of operators on stored calls to an audit log, whose lines readers of transcripts understand.

An action that cannot be logged is not done: `AuditLog.open` comes before it, and `AuditLog.write` after it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from roundtrip.errors import RoundtripError
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.files import LineFile
from roundtrip.trace.writing.lines import FORMAT, OperatorAction
from roundtrip.trace.writing.names import AUDIT_VARIABLE, TRACE_VARIABLE

__all__ = ["AuditLog", "AuditUnwritable", "OpenAudit", "OperatorProgram", "audit_path", "user_of_system"]

OperatorProgram = Literal["command", "ui"]
"""The program of an operator, as the `instance` of a line."""

_NAME: Final = "audit.jsonl"
_MAX_NAME_CHARS: Final = 256


class AuditUnwritable(RoundtripError):
    """The audit log cannot be written; the text says why, and if the action was done."""


def audit_path(given: str | None, transcripts: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Return the file of the audit log; None if no option, variable or transcript says where it is.

    Args:
        given: The option of the user.
        transcripts: The files and directories that the user named.
        environment: The variables of the process.
    """
    if place := given or environment.get(AUDIT_VARIABLE):
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


class AuditLog:
    """Audit log of one operator. Several processes may write to its file, which only its owner can read.

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

    def open(self, call: str, tool: str | None, action: OperatorAction) -> "OpenAudit":
        """Open the file for the line of an action that is not done yet.

        Raises:
            AuditUnwritable: It cannot be opened.
        """
        # Never rotated: a log of who did what must not lose its oldest lines.
        file = None if self.path is None else LineFile(self.path, max_bytes=0, keep=0)
        if file is not None:
            try:
                if not file.path.parent.is_dir():
                    # A mistyped folder must not get a second log.
                    raise FileNotFoundError(ENOENT, "its folder does not exist")
                file.open()
            except (OSError, ValueError) as error:
                raise AuditUnwritable(
                    f"the audit log {str(self.path)!r} must be writable, got: {_reason(error)}; nothing was done; name "
                    f"another file with --audit or {AUDIT_VARIABLE}"
                ) from error
        head = {"instance": self._program, "call": _plain(call)[:_MAX_NAME_CHARS]}
        head |= {} if tool is None else {"tool": _plain(tool)}
        return OpenAudit(file, {**head, "action": action, "by": self._by}, self._system)


class OpenAudit:
    """Open audit log, which takes the line of one action.

    Args:
        file: The file.
        head: The members of the line that are known before the action.
        system: The clock.
    """

    def __init__(self, file: LineFile | None, head: Mapping[str, Any], system: System) -> None:
        self._file = file
        self._head = head
        self._system = system

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, outcome: Literal["done", "rejected"], why: str = "") -> None:
        """Write the line of the action.

        Args:
            outcome: The outcome.
            why: The reason for a rejection, or the name of the answered question; never a value of the call.

        Raises:
            AuditUnwritable: It cannot be written.
        """
        if self._file is None:
            return
        line = {"v": FORMAT, "event": "acted", "at": round(self._system.time(), 6), **self._head}
        text = json.dumps({**line, "outcome": outcome, "why": _plain(why)}, separators=(",", ":"))
        try:
            self._file.write(text.encode("ascii") + b"\n")
        except (OSError, ValueError) as error:
            done = "was done" if outcome == "done" else "was rejected"
            raise AuditUnwritable(
                f"the audit log {str(self._file.path)!r} must be writable, got: {_reason(error)}; the action {done} "
                "all the same, and its line is missing"
            ) from error


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _plain(text: str) -> str:
    """Return a text without lone surrogates, which readers of JSON reject."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
