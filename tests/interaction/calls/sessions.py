"""`roundtrip call` in a process of its own: by a person at a real pseudo-terminal, or by a script."""

import os
import pty
import re
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from roundtrip.cli import main
from tests.kit import hosts
from tests.kit.forks import FORKS, command_of, is_readable
from tests.kit.hosts import ROOT, WAIT, Factory, name_of
from tests.kit.threaded_servers import serve_in_thread

PATIENCE: Final = 2 * WAIT
"""A server of its own imports the SDK, which takes a few seconds; on a busy machine many."""

ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
"""The colours and weights that we put there ourselves."""


def command(factory: Factory) -> str:
    """Return the command, as a person types it, that serves a factory's server over stdio."""
    return shlex.join(command_of(hosts.main, name_of(factory)))


@dataclass(frozen=True, slots=True)
class Ended:
    """Call that has ended."""

    code: int
    out: str
    told: str
    """What was said on standard error."""


def served(factory: Factory, *, port: int = 0) -> AbstractContextManager[str]:
    """Serve a factory's server over streamable HTTP from this process, and yield its URL."""
    return serve_in_thread(factory().streamable_http_app(), port=port)


@dataclass(frozen=True, slots=True)
class Streams:
    """The files that a process has as its standard streams."""

    stdin: str
    stdout: str
    stderr: str


def run(arguments: Sequence[str], streams: Streams, env: Mapping[str, str]) -> None:
    """Become a session with these streams, and run the command."""
    os.setsid()
    os.chdir(ROOT)
    os.environ.update(env)
    warnings.simplefilter("error")
    # The first terminal that a session opens is its own: Ctrl-C comes from there.
    for number, (file, mode) in enumerate(
        (
            (streams.stdin, os.O_RDWR),
            (streams.stdout, os.O_WRONLY | os.O_CREAT),
            (streams.stderr, os.O_RDWR | os.O_CREAT),
        )
    ):
        os.dup2(os.open(file, mode, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
    sys.exit(main(["call", *arguments]))


def started(arguments: Sequence[str], streams: Streams, env: Mapping[str, str] | None) -> BaseProcess:
    process = FORKS.Process(target=run, args=(arguments, streams, dict(env or {})), daemon=False)
    process.start()
    return process


def script(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Ended:
    """Make a call without a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        given, out, told = (Path(folder, name) for name in ("in", "out", "told"))
        given.write_text(stdin, encoding="utf-8")
        process = started(arguments, Streams(str(given), str(out), str(told)), env)
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join(WAIT)
            raise AssertionError(f"the call did not end; it said:\n{told.read_text(encoding='utf-8')}")
        return Ended(process.exitcode, out.read_text(encoding="utf-8"), told.read_text(encoding="utf-8"))


class AtTerminal:
    """Person who reads the call's output and types; standard output is a pipe."""

    def __init__(self, process: BaseProcess, screen: int, out: Path) -> None:
        self._process = process
        self._screen = screen
        self._out = out
        self._read = 0
        self.seen = ""
        self.codes: list[str] = []
        """The colours and weights that came; `seen` is without them."""

    def wait_until_open(self) -> None:
        """Wait for the process to have its streams."""
        deadline = time.monotonic() + PATIENCE
        while not self._out.exists():
            if time.monotonic() > deadline or self._process.exitcode is not None:
                raise AssertionError("the call did not start")
            time.sleep(0.01)

    def wait_for(self, *texts: str) -> str:
        """Read until any of some texts has come, and return the output since the last wait."""
        deadline = time.monotonic() + PATIENCE
        start = self._read
        while not (ends := [found + len(text) for text in texts if (found := self.seen.find(text, start)) >= 0]):
            if not self._more(deadline):
                raise AssertionError(f"{texts} were never said; what was:\n{self.seen}")
        self._read = min(ends)
        return self.seen[start : self._read]

    def type(self, line: str) -> None:
        os.write(self._screen, line.encode() + b"\n")

    def reply(self, prompt: str, line: str) -> None:
        """Type a line when asked for it."""
        self.wait_for(prompt)
        self.type(line)

    def interrupt(self) -> None:
        os.write(self._screen, b"\x03")

    def end(self) -> Ended:
        """Read to the end."""
        deadline = time.monotonic() + PATIENCE
        while self._more(deadline):
            pass
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            raise AssertionError(f"the call did not end; it said:\n{self.seen}")
        return Ended(self._process.exitcode, self._out.read_text(encoding="utf-8"), self.seen)

    def _more(self, deadline: float) -> bool:
        """Read the next output. A closed pseudo-terminal ends in an error, or in an empty read."""
        try:
            chunk = os.read(self._screen, 65536) if is_readable(self._screen, deadline - time.monotonic()) else b""
        except OSError:
            return False
        text = chunk.decode("utf-8", "replace").replace("\r\n", "\n")
        self.codes += ESCAPES.findall(text)
        self.seen += ESCAPES.sub("", text)
        return bool(chunk)


@contextmanager
def person(*arguments: str, env: Mapping[str, str] | None = None) -> Generator[AtTerminal]:
    """Start a call at a pseudo-terminal."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        ours, theirs = pty.openpty()
        name = os.ttyname(theirs)
        process = started(arguments, Streams(name, str(out), name), {"TERM": "xterm-256color", **(env or {})})
        at = AtTerminal(process, ours, out)
        try:
            # From here on the process holds the other end alone, so that its end is the end of what can be read.
            at.wait_until_open()
            os.close(theirs)
            yield at
        finally:
            process.kill()
            process.join(WAIT)
            os.close(ours)
