"""A test's own Redis (or Valkey) server, if the program is installed."""

import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.kit.waiting import WAIT

__all__ = ["RedisServer", "redis_server"]

_PROGRAM: Final = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """Server on a socket file. Tests can kill, restart, suspend and resume it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self, *options: str) -> None:
        if _PROGRAM is None:
            pytest.skip("neither redis-server nor valkey-server is installed")
        command = [_PROGRAM, "--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder)]
        persistence = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *persistence, *options], stdout=log, stderr=log)
        ends = time.monotonic() + WAIT
        while not self._answers():
            if time.monotonic() > ends or self._process.poll() is not None:
                raise AssertionError((self._folder / "redis.log").read_text())
            time.sleep(0.02)

    def command(self, *words: str) -> str:
        """Run a command in the server's own client, and return its output."""
        program = str(_PROGRAM).replace("-server", "-cli")
        done = subprocess.run([program, "-s", str(self._socket), *words], capture_output=True, text=True, timeout=WAIT)
        return done.stdout.strip()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT)
            self._process = None

    def stop(self) -> None:
        """Suspend the server, as if its machine hung."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        return self._socket.exists() and self.command("ping") == "PONG"


@contextmanager
def redis_server(*options: str) -> Generator[RedisServer]:
    # A socket's path must be short, shorter than pytest's own folders are.
    with TemporaryDirectory(prefix="rt") as folder:
        server = RedisServer(Path(folder))
        server.start(*options)
        try:
            yield server
        finally:
            server.go_on()
            server.kill()
