"""Server processes, and what the kernel says of them."""

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
    """What servers run on."""

    PLAIN = "plain"
    """uvicorn with h11 and asyncio, as its default install has them."""
    FAST = "fast"
    """uvicorn with httptools and uvloop."""
    SERVE = "serve"
    """roundtrip by `roundtrip serve` with its extra `fast`, and the others as `PLAIN`."""


class Process:
    """One server in a process of its own, on a port of its own."""

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
        """Seconds that it has computed so far."""
        # The name, in parentheses, may hold anything; the fields after it are numbered from three.
        fields = self._read("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def rss(self) -> int:
        """Bytes of memory that it holds."""
        line = next(line for line in self._read("status").splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")

    def end(self) -> None:
        self._process.kill()
        self._process.wait(_WAIT)
        self._listening.close()


def on_core(core: int | None) -> list[str]:
    """Return the start of a command that keeps a process on one core."""
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
    """Some processes with the same server, which has the tool of a call of `benchmarks.fleet.host`."""
    processes: list[Process] = []
    try:
        for _ in range(count):
            processes.append(Process(app, work=work, core=core, stack=stack))  # noqa: PERF401 - those that did start must be ended
        yield processes
    finally:
        for process in processes:
            process.end()
