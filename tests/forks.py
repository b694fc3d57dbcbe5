"""Processes that have imported everything when they begin: each is forked from one that does nothing else.

To start an interpreter and import the SDK takes two seconds of a processor, which is most of many a test. What begins
here is a process in all else: it has an id, an environment and streams of its own, gets signals, and dies alone.
"""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["FORKS", "Piped", "Program", "Started", "piped", "start"]

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "redis.asyncio",
        "roundtrip.client.call",
        "roundtrip.cli",
        "roundtrip.demo.tour",
        "roundtrip.ledger",
        "roundtrip.serving.application",
        "roundtrip.serving.supervisor",
        "roundtrip.testing",
        "roundtrip.trace.page.serving",
        "tests.hosts",
    ]
)

Program = Callable[[Sequence[str]], int | None]
"""The `main` of a module: it takes the words of a command line and gives the exit code."""


class _Descriptor:
    """A file descriptor on its way to another process, where it is another number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _arrived, (DupFd(self._number),)


def _arrived(sent: Any) -> int:
    return sent.detach()


def _run(
    program: Program, arguments: Sequence[str], folder: str, environment: Mapping[str, str], streams: Sequence[int]
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A suite that runs in the background has been told to ignore it, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [program.__module__, *arguments]
    sys.stdin = _opened(0, "r")
    sys.stdout = _opened(1, "w", line_buffering=os.isatty(1))
    sys.stderr = _opened(2, "w", errors="backslashreplace", line_buffering=True)
    sys.exit(program(arguments))


def _opened(stream: int, mode: str, **options: Any) -> io.TextIOWrapper:
    # They stay open when they are collected, as those of an interpreter do.
    raw = open(stream, f"{mode}b", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", **options)


class Started:
    """A process that has been started."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        if process.pid is None:
            raise RuntimeError("it was not started")
        self.pid: int = process.pid

    def poll(self) -> int | None:
        """Its exit code, if it has ended; a signal's number, with a minus, if that was its end."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Its exit code, once it has ended.

        Raises:
            TimeoutExpired: It has not in that time.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), seconds)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a word, if it has not ended."""
        self._process.kill()


def start(
    program: Program,
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Started:
    """Run a program in a process of its own.

    Args:
        program: What it runs.
        arguments: The words of its command line.
        cwd: Where it runs.
        env: Its environment; this process's unless it is given.
        stdin: What it reads; nothing unless it is given.
        stdout: What it writes to; as this process unless it is given.
        stderr: What it complains to; as this process unless it is given.
    """
    with open(os.devnull, "rb") as nothing:
        given = [nothing.fileno() if stdin is None else stdin, 1 if stdout is None else stdout]
        streams = [_Descriptor(number) for number in (*given, 2 if stderr is None else stderr)]
        environment = dict(os.environ if env is None else env)
        process = FORKS.Process(
            target=_run, args=(program, list(arguments), str(cwd), environment, streams), daemon=True
        )
        process.start()
    return Started(process)


_ENDS: Final = 20.0
"""Seconds in which a process is gone that has been killed."""


@dataclass(frozen=True, slots=True)
class Piped:
    """A process that is talked to from here."""

    process: Started
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]


@contextmanager
def piped(program: Program, *arguments: str, cwd: Path) -> Generator[Piped]:
    """Run a program that is talked to from here, and kill it at the end of the block unless it has ended."""
    (stdin, ours), (out, stdout), (told, stderr) = os.pipe(), os.pipe(), os.pipe()
    with (
        open(ours, "w", encoding="utf-8") as given,
        open(out, encoding="utf-8") as said,
        open(told, encoding="utf-8") as complained,
    ):
        try:
            process = start(program, arguments, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
        finally:
            for number in (stdin, stdout, stderr):
                os.close(number)
        try:
            yield Piped(process, given, said, complained)
        finally:
            process.kill()
            process.wait(_ENDS)
