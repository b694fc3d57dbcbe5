"""`Recorder`, the tracer that writes transcripts."""

import asyncio
import itertools
import json
import os
import re
import socket
import threading
from collections import deque
from contextvars import Context
from pathlib import Path
from typing import Any, Final

from roundtrip.machine.facts import Watch
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.files import LineFile
from roundtrip.trace.writing.redaction import Redaction, Reveal, dumps, read_reveal
from roundtrip.trace.writing.servings import RecordedServing
from roundtrip.trace.writing.unwritten import UNWRITTEN
from roundtrip.trace.writing.writer import subject_members
from roundtrip.tracing import Beginning, Era, ServedFunction, StoppedCall, TokenRejection, Unfailing

_MAX_FILE_BYTES: Final = 64 * 1024 * 1024
_KEPT_FILES: Final = 4
_PAUSE_SECONDS: Final = 0.02
"""Minimum seconds between two writes, so that a busy server writes many lines at once."""
_DIGEST_KEY_BYTES: Final = 32

_recorders = itertools.count(1)
_forks = 0
"""The number of forks between the first process and this process. Comparing process ids each time would be slow."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Recorder(Unfailing):
    """Tracer that writes a transcript: a JSON line for each event in a call (`specs/transcript.md`).

    Several processes may write to one file. A recording error never ends a call: a full disk only logs a warning.

    Lines are written within 20 milliseconds after the response. When the process exits or `flush` is called, pending
    lines are written at once. If the process is killed, its pending lines are lost.

    Args:
        path: The file, which only its owner can read. If the path is a directory, each process writes a separate file
            in it.
        reveal: The values to record in plain text: `"all"`, or some of `arguments`, `answers`, `questions`, `results`,
            `steps` and `errors`. Other values are recorded as digests. `roundtrip check` and `trace to-test` need
            `"all"`.
        max_bytes: The maximum file size. A full file is renamed to `NAME.1`, and a new file begins; 0 disables
            rotation.
        keep: The number of old files to keep.
        instance: This process's name in the transcript. The default is the host name and the process id.
        system: Clock and randomness.

    Raises:
        ValueError: `reveal` has an unknown name, or a number is negative.

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
        max_bytes: int = _MAX_FILE_BYTES,
        keep: int = _KEPT_FILES,
        instance: str | None = None,
        system: System = SYSTEM,
    ) -> None:
        if max_bytes < 0 or keep < 0:
            raise ValueError(f"max_bytes and keep must be at least 0, got max_bytes={max_bytes} and keep={keep}")
        self._revealed = read_reveal(reveal)
        self._path = Path(path)
        # For an invalid path, `isdir` returns False. The first attempt to write then logs a warning.
        self._is_folder = os.fspath(path).endswith(("/", os.sep)) or os.path.isdir(path)
        self._sizes = {"max_bytes": max_bytes, "keep": keep}
        self._instance = instance
        self._number = next(_recorders)
        self._system = system
        self._has_key = False
        self._redaction = Redaction(system.entropy(_DIGEST_KEY_BYTES), self._revealed)
        self._subjects: dict[tuple[ServedFunction, Era, str | None], str] = {}
        self._servings = itertools.count(1)
        self._file = self._start_file()

    @property
    def path(self) -> Path:
        """Return the current file."""
        return self._file.path

    def use_key(self, key: bytes) -> None:
        """Use a key for digests. All instances that have the same key record the same digests.

        If several servers share a recorder, it uses the first server's key.
        """
        if not self._has_key:
            self._has_key = True
            self._redaction = Redaction(key, self._revealed)

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch that writes one request's lines."""
        name = (beginning.subject, beginning.era, beginning.protocol)
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = subject_members(*name)
        head = self._head()
        return RecordedServing(
            beginning, head, subject, self._redaction, queue=self._queue_serving, system=self._system
        ).keep

    def reject(self, rejection: TokenRejection) -> None:
        """Write a line for a rejected token."""
        journal = rejection.journal
        line: dict[str, Any] = {"reason": rejection.reason.value, "method": rejection.method}
        if journal is not None:
            line |= {"call": journal.call_id, "leg": journal.leg + 1, "round": journal.round}
        line |= {"tool": rejection.tool, "protocol": rejection.protocol, "token_bytes": rejection.token_bytes}
        if rejection.principal is not None:
            line["principal"] = self._redaction.fingerprint(rejection.principal)
        self._queue_line("rejected", self._head(), line)

    def stop(self, stopped: StoppedCall) -> None:
        """Write a line for a stored call that ended."""
        self._begin_after_fork()
        line = {"call": stopped.call_id, "tool": stopped.tool, "how": stopped.how, "joined": stopped.joined}
        self._queue_line("stopped", f'"instance":{self._name}', line)

    def flush(self) -> None:
        """Write all pending lines now. Thread-safe."""
        # A forked child must not write its parent's lines.
        if self._forks == _forks:
            self._write_pending()

    def _queue_line(self, event: str, head: str, line: dict[str, Any]) -> None:
        """Queue a line that is not about an attempt at a leg. Members that are None are left out."""
        members = dumps({name: value for name, value in line.items() if value is not None})
        self._pending.append(f'{{"v":1,"event":"{event}","at":{self._system.time():.6f},{head},{members[1:]}')
        self._schedule_write()

    def _begin_after_fork(self) -> None:
        """Start over in a forked child. The child has its own serving count, and may write to a different file."""
        if self._forks != _forks:
            self._file = self._start_file()

    def _head(self) -> str:
        self._begin_after_fork()
        return f'"instance":{self._name},"serving":{next(self._servings)}'

    def _start_file(self) -> LineFile:
        self._forks = _forks
        self._servings = itertools.count(1)
        self._pending: deque[str | RecordedServing] = deque()
        self._writing = threading.Lock()
        self._written = 0.0
        self._scheduled_loop: asyncio.AbstractEventLoop | None = None
        suffix = f"#{self._number}" if self._number > 1 else ""
        default_name = f"{socket.gethostname()}:{os.getpid()}{suffix}"
        instance = self._instance if self._instance is not None else default_name
        self._name = dumps(instance)
        path = self._path / f"{re.sub(r'[^A-Za-z0-9._-]', '-', instance)}.jsonl" if self._is_folder else self._path
        return LineFile(path, **self._sizes)

    def _queue_serving(self, serving: RecordedServing) -> None:
        serving.is_queued = True
        self._pending.append(serving)
        if serving.is_direct:
            # Do not delay: a direct call has no response to wait for, and its caller may read the file next.
            self._write_pending()
        else:
            self._schedule_write()

    def _schedule_write(self) -> None:
        """Schedule a write for the event loop's next turn, or slightly later if the recorder has just written."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write_pending()
            return
        if self._scheduled_loop is not loop:
            self._scheduled_loop = loop
            UNWRITTEN.add(self.flush)
            # Use an empty context, because the loop keeps a timer's context until the timer fires.
            delay = max(0.0, self._written + _PAUSE_SECONDS - self._system.monotonic())
            loop.call_later(delay, self._write_pending, context=Context())

    def _write_pending(self) -> None:
        lines: list[bytes] = []

        def add(text: str) -> None:
            if "\\ud" in text:
                text = _without_lone_surrogates(text)
            lines.append(text.encode() + b"\n")

        with self._writing:
            self._scheduled_loop = None
            UNWRITTEN.discard(self.flush)
            while self._pending:
                item = self._pending.popleft()
                if isinstance(item, str):
                    add(item)
                else:
                    item.is_queued = False
                    item.write(add)
            self._file.append(lines)
            self._written = self._system.monotonic()


def _without_lone_surrogates(text: str) -> str:
    """Replace lone surrogates in a line, because JSON readers reject them."""
    decoded = json.dumps(json.loads(text), ensure_ascii=False)
    return dumps(json.loads(decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")))
