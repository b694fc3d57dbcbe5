"""`roundtrip serve` as a separate process, which tests signal and inspect."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from roundtrip.cli import main
from tests.kit.forks import ForkedProcess, start
from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT
from tests.kit.waiting import until_plain as eventually
from tests.kit.wire import ACCEPT

__all__ = [
    "KEY",
    "SHOPS",
    "WAIT",
    "InterpretedService",
    "Service",
    "environment",
    "eventually",
    "not_begun",
    "refused",
    "words",
]

KEY: Final = "7f" * 32
SHOPS: Final = "tests.interaction.serving.shops"
_SERVES: Final = re.compile(r"serves on (\S+) with")


def words(target: str, *flags: str) -> list[str]:
    """Return a command line of `roundtrip` that serves one of the shops, or a whole `FILE:NAME` or file."""
    return ["serve", target if ":" in target or target.endswith(".py") else f"{SHOPS}:{target}", "--port", "0", *flags]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROUNDTRIP_")}
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def refused(target: str, *flags: str, folder: Path, **variables: str) -> str:
    """Return the message of a `roundtrip serve` that does not start."""
    return not_begun(words(target, *flags), folder=folder, **variables)


def not_begun(command: list[str], *, folder: Path, **variables: str) -> str:
    """Return the message of a command that does not start."""
    with (folder / "told").open("w+", encoding="utf-8") as told:
        process = start(main, command, cwd=folder, env=environment(**variables), stderr=told.fileno())
        try:
            code = process.wait(WAIT)
        finally:
            process.kill()
        told.seek(0)
        said = told.read()
    assert code == 2, said
    assert "Traceback" not in said
    return said


class Service:
    """A running `roundtrip serve`."""

    announces = _SERVES

    def words(self, target: str, *flags: str) -> list[str]:
        return words(target, *flags)

    def __init__(self, target: str, *flags: str, folder: Path, **variables: str) -> None:
        self.folder = folder
        ours, theirs = os.pipe()
        self._stderr = open(ours, encoding="utf-8")  # noqa: SIM115 - `__exit__` closes it
        with open(theirs, "wb"):
            self.process = self._start(self.words(target, *flags), environment(**variables), theirs)
        self.log: list[str] = []
        self._told: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self._announced()

    def _start(self, command: list[str], env: dict[str, str], stderr: int) -> "ForkedProcess | subprocess.Popen[bytes]":
        return start(main, command, cwd=self.folder, env=env, stderr=stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(WAIT)
        self._reader.join(WAIT)
        self._stderr.close()

    def workers(self) -> set[int]:
        """Return the ids of the supervisor's living processes."""
        pid = self.process.pid
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(WAIT)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Return the service's response to a GET, on a new connection."""
        return self._answer("GET", path, None, headers)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        """Return the service's response to a POST of JSON, on a new connection."""
        return self._answer("POST", path, body, {"content-type": "application/json", **ACCEPT, **headers})

    def _answer(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=WAIT)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            body = response.read()
            return response.status, json.loads(body) if body.startswith(b"{") else body.decode()
        finally:
            connection.close()

    def _read(self) -> None:
        for line in self._stderr:
            self.log.append(line)
            self._told.put(line)
        self._told.put(None)

    def heard(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """Wait for a line of its log that matches."""
        while (line := self._told.get(timeout=WAIT)) is not None:
            if (found := re.search(pattern, line)) is not None:
                return found
        raise AssertionError("".join(self.log))

    def _announced(self) -> str:
        return self.heard(self.announces)[1]


class InterpretedService(Service):
    """A running `roundtrip serve` with an interpreter of its own. The others are forked, and end without one's end."""

    def _start(self, command: list[str], env: dict[str, str], stderr: int) -> "ForkedProcess | subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "roundtrip", *command], cwd=self.folder, env=env, stderr=stderr)
