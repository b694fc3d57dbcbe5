"""Server processes, and their processor time and memory."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

__all__ = ["Process", "Stack", "on_core", "served"]

_HOST: Final = "127.0.0.1"
_WAIT: Final = 20.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Stack(StrEnum):
    """HTTP parser and event loop under a server."""

    PLAIN = "plain"
    """uvicorn with h11 and asyncio, as in its default installation."""
    FAST = "fast"
    """uvicorn with httptools and uvloop."""
    SERVE = "serve"
    """roundtrip with `roundtrip serve` and the extra `fast`; other peers as `PLAIN`."""


class Process:
    """Process with one server on its own port."""

    def __init__(self, app: str, *, work: str, core: int | None, stack: Stack) -> None:
        self._listening = socket.create_server((_HOST, 0), backlog=1024)
        self.port: int = self._listening.getsockname()[1]
        fd = self._listening.fileno()
        command = [
            sys.executable,
            "-m",
            "benchmarks.fleet.host",
            app,
            "--fd",
            str(fd),
            "--work",
            work,
            "--stack",
            stack,
        ]
        self._process = subprocess.Popen([*on_core(core), *command], pass_fds=[fd])

    @property
    def cpu(self) -> float:
        """Return the seconds of processor time so far."""
        # The name in parentheses may contain anything. The fields after it count from three.
        fields = self._read("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def rss(self) -> int:
        """Return the bytes of resident memory."""
        line = next(line for line in self._read("status").splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")

    def end(self) -> None:
        self._process.kill()
        self._process.wait(_WAIT)
        self._listening.close()


def on_core(core: int | None) -> list[str]:
    """Return the words that start a command on one core."""
    return [] if core is None else ["taskset", "-c", str(core)]


@contextmanager
def served(
    app: str,
    count: int = 1,
    *,
    work: str = "three-rounds",
    core: int | None = None,
    stack: Stack = Stack.PLAIN,
) -> Generator[list[Process]]:
    """Run processes that all serve the tool for one call in `benchmarks.fleet.host`."""
    processes: list[Process] = []
    try:
        for _ in range(count):
            processes.append(Process(app, work=work, core=core, stack=stack))  # noqa: PERF401 - those that did start must be ended
        yield processes
    finally:
        for process in processes:
            process.end()
