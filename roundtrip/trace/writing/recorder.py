"""`Recorder`: writes what happens to calls into a transcript."""

import itertools
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, Final

from roundtrip.machine.facts import Watch
from roundtrip.trace.writing.files import LineFile
from roundtrip.trace.writing.redaction import Redaction, Reveal, dumps, read_reveal
from roundtrip.trace.writing.writer import TranscriptWriter, subject_members
from roundtrip.tracing import Beginning, Era, ServedFunction, TokenRejection, Unfailing

__all__ = ["Recorder"]

MAX_BYTES: Final = 64 * 1024 * 1024
KEEP: Final = 4
_DIGEST_KEY_BYTES: Final = 32
_LONE_SURROGATE: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)(\\ud[89ab][0-9a-f]{2})(\\ud[c-f][0-9a-f]{2})?|(?<!\\)((?:\\\\)*)\\ud[c-f][0-9a-f]{2}"
)

_recorders = itertools.count(1)


class Recorder(Unfailing):
    """Writes a transcript: one line of JSON for each thing that happens to a call (`specs/transcript.md`).

    Several processes may write to one file. Recording never ends a call: a disk that is full is one warning in the log.

    Args:
        path: The file, which is made readable by its owner alone; or a directory, for a file of this process in it.
        reveal: Which values are kept as they are: `"all"`, or some of `arguments`, `answers`, `questions`, `results`,
            `steps` and `errors`. Of the others there is a digest. `roundtrip check` and `trace to-test` need `"all"`.
        max_bytes: When the file would grow beyond this it is renamed to `NAME.1`, and a new one begun; 0 for never.
        keep: How many of the old files are kept.
        instance: What this process is called in the transcript; by default the host's name and the process's id.

    Raises:
        ValueError: `reveal` names something unknown, or a number is negative.

    Example:
        ```python
        server = Server("bookshop", trace=Recorder("calls.jsonl", reveal="all"))
        ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        reveal: Reveal = (),
        max_bytes: int = MAX_BYTES,
        keep: int = KEEP,
        instance: str | None = None,
    ) -> None:
        if max_bytes < 0 or keep < 0:
            raise ValueError(f"max_bytes={max_bytes} and keep={keep}: neither can be negative")
        self._revealed = read_reveal(reveal)
        named = Path(path)
        self._is_folder = os.fspath(path).endswith(("/", os.sep)) or _is_folder(named)
        self._named = named
        self._sizes = {"max_bytes": max_bytes, "keep": keep}
        self._instance = instance
        self._number = next(_recorders)
        self._redaction = Redaction(os.urandom(_DIGEST_KEY_BYTES), self._revealed)
        self._has_key = False
        self._subjects: dict[tuple[ServedFunction, Era, str | None], str] = {}
        self._pid = 0
        self._servings = itertools.count(1)
        self._file = self._start()

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._file.path

    def use_key(self, key: bytes) -> None:
        """Make digests with this key, so that they can be compared with those of other instances that have it.

        Of several servers that write through one recorder, the first has the say.
        """
        if not self._has_key:
            self._has_key = True
            self._redaction = Redaction(key, self._revealed)

    def begin(self, beginning: Beginning) -> Watch:
        """Watch one serving."""
        name = (beginning.subject, beginning.era, beginning.protocol)
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = subject_members(*name)
        return TranscriptWriter(
            beginning, head=self._head(), subject=subject, redaction=self._redaction, write=self._write
        )

    def reject(self, rejection: TokenRejection) -> None:
        """Note a token that was rejected."""
        journal = rejection.journal
        line: dict[str, Any] = {"reason": rejection.reason.value, "method": rejection.method}
        if journal is not None:
            line |= {"call": journal.call_id, "leg": journal.leg + 1, "round": journal.round}
        told = {"tool": rejection.tool, "protocol": rejection.protocol, "token_bytes": rejection.token_bytes}
        line |= {name: value for name, value in told.items() if value is not None}
        if rejection.principal is not None:
            line["principal"] = self._redaction.fingerprint(rejection.principal)
        self._write(f'{{"v":1,"event":"rejected","at":{time.time():.6f},{self._head()},{dumps(line)[1:]}')

    def _head(self) -> str:
        if os.getpid() != self._pid:
            # A process that was forked off counts its own servings.
            self._file = self._start()
        return f'"instance":{self._name},"serving":{next(self._servings)}'

    def _start(self) -> LineFile:
        self._pid = os.getpid()
        self._servings = itertools.count(1)
        suffix = f"#{self._number}" if self._number > 1 else ""
        own = f"{socket.gethostname()}:{self._pid}{suffix}"
        instance = self._instance if self._instance is not None else own
        self._name = dumps(instance)
        path = self._named / f"{re.sub(r'[^A-Za-z0-9._-]', '-', instance)}.jsonl" if self._is_folder else self._named
        return LineFile(path, **self._sizes)

    def _write(self, text: str) -> None:
        if "\\ud" in text:
            text = _LONE_SURROGATE.sub(_without_lone, text)
        self._file.append(text.encode() + b"\n")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        # No path at all: writing to it will be told as a warning.
        return False


def _without_lone(found: re.Match[str]) -> str:
    before, high, low, before_low = found.groups()
    if high is None:
        return f"{before_low}\\ufffd"
    return found[0] if low is not None else f"{before}\\ufffd"
