"""Processes for the demo's instances: they are started, asked for reports, replaced, and always ended."""

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from roundtrip.demo.instance import HOST, KEY_VARIABLE, Change

_START_SECONDS: Final = 30.0
_REPORT_SECONDS: Final = 10.0
_END_SECONDS: Final = 5.0


class InstanceFailed(Exception):
    """An instance ended, or did not report in time. The message contains the instance's last output."""


class DemoInstance:
    """An instance in the demo: a name, and the process that currently serves under it."""

    def __init__(self, name: str, *, key: str) -> None:
        self.name = name
        self._key = key
        self._start()

    def _start(self) -> None:
        self.has_served = False
        """True once the current process has served a leg."""
        self._reports: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - `end` closes
        self._port: int | None = None
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of our own
            [sys.executable, "-m", "roundtrip.demo.instance", "--name", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, KEY_VARIABLE: self._key},
            # Put the instances into a separate session. Otherwise, Ctrl-C in the terminal would end them before the
            # demo does.
            start_new_session=True,
        )
        threading.Thread(target=_read_reports, args=(self._process.stdout, self._reports), daemon=True).start()

    @property
    def pid(self) -> int:
        """The current process's id."""
        return self._process.pid

    def url(self) -> str:
        """Wait until the instance is ready, and return its address.

        Raises:
            InstanceFailed: The instance did not start.
        """
        if self._port is None:
            self._port = int(self._next_line(_START_SECONDS))
        return f"http://{HOST}:{self._port}/mcp"

    def changes_of_leg(self) -> list[Change]:
        """Read the state changes that happened on the last leg.

        Raises:
            InstanceFailed: The instance did not report the changes.
        """
        changes: list[Change] = []
        while not changes or not changes[-1].ends_leg:
            changes.append(Change.model_validate_json(self._next_line(_REPORT_SECONDS)))
        return changes

    def replace(self) -> None:
        """Kill the process and start a new one. Do not wait until the new process is ready."""
        self.end()
        self._start()

    def kill(self) -> None:
        """Kill the process without waiting for it to exit."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and wait for it to exit."""
        self.kill()
        self._process.wait(_END_SECONDS)
        for stream in (self._process.stdin, self._errors):
            if stream is not None:
                stream.close()

    def _next_line(self, seconds: float) -> str:
        try:
            line = self._reports.get(timeout=seconds)
        except queue.Empty:
            raise InstanceFailed(f"{self.name} has not reported for {seconds:.0f} s{self._errors_text()}") from None
        if line is None:
            raise InstanceFailed(f"{self.name} (pid {self.pid}) has ended{self._errors_text()}")
        return line

    def _errors_text(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().strip()
        return f":\n{text[-2000:]}" if text else ""


@contextmanager
def demo_fleet(names: Sequence[str], *, key: str) -> Generator[list[DemoInstance]]:
    """Start an instance for each name, and kill every process on exit."""
    instances: list[DemoInstance] = []
    try:
        for name in names:
            instances.append(DemoInstance(name, key=key))  # noqa: PERF401 - a failure must end those before it
        yield instances
    finally:
        # Kill all instances before waiting for any of them, so that a failed wait leaves no process running.
        for instance in instances:
            instance.kill()
        for instance in instances:
            instance.end()


def _read_reports(output: IO[str], reports: "queue.SimpleQueue[str | None]") -> None:
    with output:
        for line in output:
            reports.put(line)
    reports.put(None)
