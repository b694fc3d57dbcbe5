"""Operator log: operators' actions on stored calls, in lines that transcript readers also understand.

An action that cannot be logged is not performed. `OperatorLog.open` opens the log before the action, and the line is
written after the action.
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
"""The operator's program, recorded as the line's `instance`."""
WriteOutcome = Callable[[Literal["done", "rejected"], str], None]
"""Function that writes an action's line. Its arguments are the outcome, and the reason or the answered question's name.
"""

_NAME: Final = "operators.jsonl"
_MAX_NAME_CHARS: Final = 256


class OperatorLogUnwritable(RoundtripError):
    """The operator log cannot be written. The message says why, and whether the action was performed."""


def operator_log_path(option: str | None, transcripts: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Return the operator log's path. Return None if no option, variable or transcript determines the path.

    Args:
        option: The path that the user passed as an option.
        transcripts: The files and directories that the user named.
        environment: The environment variables.
    """
    if location := option or environment.get(OPERATOR_LOG_VARIABLE):
        return Path(location)
    neighbor = transcripts[0] if transcripts else environment.get(TRACE_VARIABLE)
    if not neighbor:
        return None
    path = Path(neighbor)
    is_folder = neighbor.endswith(("/", os.sep)) or path.is_dir()
    return (path if is_folder else path.parent) / _NAME


def user_of_system() -> str:
    """Return the operating-system user, regardless of environment variables."""
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
    """One operator's log. Several processes may write to the file, which only its owner can read.

    Args:
        path: The file; None disables the log.
        program: The operator's program.
        by: The operator's name.
        system: The clock.
    """

    def __init__(self, path: Path | None, *, program: OperatorProgram, by: str, system: System = SYSTEM) -> None:
        self.path = path
        self._program = program
        self._by = _replace_surrogates(by)[:_MAX_NAME_CHARS]
        self._system = system

    @contextmanager
    def open(self, call: str, tool: str | None, action: OperatorAction) -> Generator[WriteOutcome]:
        """Open the file before an action, so that the action's line can be written afterwards.

        In the `with` block, call the yielded function once with the outcome. Also pass the reason if the action was
        rejected, or the question's name if a question was answered. Never pass a value from the call.

        Raises:
            OperatorLogUnwritable: The file cannot be opened, or the line cannot be written.
        """
        if self.path is None:
            yield lambda outcome, why: None
            return
        head = {"instance": self._program, "call": _replace_surrogates(call)[:_MAX_NAME_CHARS]}
        head |= {} if tool is None else {"tool": _replace_surrogates(tool)}
        # Never rotate the file, because a log of operator actions must not lose its oldest lines.
        file = LineFile(self.path, max_bytes=0, keep=0)

        def write(outcome: Literal["done", "rejected"], why: str) -> None:
            line = {"v": FORMAT, "event": "acted", "at": round(self._system.time(), 6), **head}
            line |= {"action": action, "by": self._by, "outcome": outcome, "why": _replace_surrogates(why)}
            text = json.dumps(line, separators=(",", ":"))
            with self._writable(f"the action was {outcome} anyway, but its line is missing"):
                file.write(text.encode("ascii") + b"\n")

        with self._writable(f"nothing was done; name another file with --operator-log or {OPERATOR_LOG_VARIABLE}"):
            if not self.path.parent.is_dir():
                # Do not create folders, because a mistyped path must not start a second log.
                raise FileNotFoundError(ENOENT, "its folder does not exist")
            file.open()
        with closing(file):
            yield write

    @contextmanager
    def _writable(self, effect: str) -> Generator[None]:
        """Convert file errors to `OperatorLogUnwritable`. Its message includes the effect on the action."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OperatorLogUnwritable(
                f"cannot write the operator log {str(self.path)!r}: {reason}; {effect}"
            ) from error


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON readers reject."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
