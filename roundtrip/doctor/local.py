"""Local instances for the doctor. `roundtrip serve` starts them on this machine."""

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import IO, Final

from roundtrip.switches import OWN, PROBE_VARIABLE, RUN_TASKS_VARIABLE
from roundtrip.text import printable

PROBE_IGNORED: Final = f"{PROBE_VARIABLE} is ignored: only a roundtrip.Server has the probe of roundtrip doctor"
"""The line that `roundtrip serve` prints for a FastMCP or SDK server, because such a server has no probe."""

_INSTANCES: Final = 2
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 5.0
_SERVES: Final = re.compile(r"^roundtrip: .* serves on (\S+) with one worker$")
_COMPLAINS: Final = "roundtrip serve: "


class InstanceNotStarted(Exception):
    """An instance that did not start. The message contains the reason, and is safe to print."""


@contextmanager
def instances_of(target: str) -> Generator[list[str]]:
    """Start instances of a server, and yield their addresses. The instances stop when the `with` block ends.

    Raises:
        InstanceNotStarted: The server does not start.
    """
    with ExitStack() as stack:
        # Start all instances before waiting for the first one.
        started = [stack.enter_context(_start_instance(target)) for _ in range(_INSTANCES)]
        yield [_wait_for_address(lines, target) for lines in started]


@contextmanager
def _start_instance(target: str) -> "Generator[queue.Queue[str | None]]":
    command = [sys.executable, "-m", "roundtrip", "serve", target, "--port", "0", "--workers", "1", "--drain", "0"]
    with subprocess.Popen(  # noqa: S603 - runs this interpreter
        [*command, "--host", "127.0.0.1", "--path", "/mcp", "--log-level", "warning"],
        # A production fleet may share the store with this server, so run only the tasks of this process's clients.
        env={RUN_TASKS_VARIABLE: OWN, **os.environ, PROBE_VARIABLE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # Ctrl-C must reach the doctor and no other process. The doctor then stops the instances.
        start_new_session=True,
    ) as process:
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process.stderr, lines), daemon=True)
        reader.start()
        try:
            yield lines
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join(_END_SECONDS)


def _read(stderr: IO[str] | None, lines: "queue.Queue[str | None]") -> None:
    for line in stderr or ():
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _wait_for_address(lines: "queue.Queue[str | None]", target: str) -> str:
    """Wait until an instance reports its address."""
    error_lines: list[str] = []
    while True:
        try:
            line = lines.get(timeout=_START_SECONDS)
        except queue.Empty:
            raise InstanceNotStarted(f"an instance was not ready within {_START_SECONDS:g} s") from None
        if line is None:
            why = "\n".join(error_lines) or "an instance ended before it served"
            raise InstanceNotStarted(printable(why, keep_newlines=True))
        if line == f"roundtrip: {PROBE_IGNORED}":
            raise InstanceNotStarted(
                f"{target!r} is a FastMCP or SDK server, which cannot be probed, even after install(); examine it with "
                "roundtrip audit"
            )
        if (found := _SERVES.match(line)) is not None:
            return found[1]
        # Keep only the last error and the lines that follow it.
        error_lines = [line.removeprefix(_COMPLAINS)] if line.startswith(_COMPLAINS) else [*error_lines, line]
