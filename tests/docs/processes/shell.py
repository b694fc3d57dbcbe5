"""A shell in an empty folder, in which the blocks of a page run."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roundtrip.serving.application import READY_PATH
from tests.docs.pages import Block, blocks
from tests.kit.hosts import free_port

__all__ = ["SECONDS", "Shell", "lines_of", "on_a_free_port", "shell_blocks"]

SECONDS: Final = 120


class Shell:
    """An empty folder, and an environment without extras.

    Commands at a terminal and services are started as readers start them; the others are forked, which is faster.
    """

    def __init__(self, folder: Path, environment: dict[str, str], forking: Path) -> None:
        self.folder = folder
        self.environment = environment
        self._services: list[subprocess.Popen[bytes]] = []
        self._forking = {**environment, "PATH": f"{forking}{os.pathsep}{environment['PATH']}"}

    def run(self, line: str) -> str:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self._forking,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
        # What has something to explain says so by its exit code.
        allowed = (0, 1) if "trace explain" in line else (0,)
        assert ran.returncode in allowed, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def run_at_a_terminal(self, line: str, typed: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            try:
                out, _ = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
                os.close(ours)
        assert process.returncode == 0, line
        return out.decode()

    def open_playground(self, line: str) -> None:
        """Run the playground until it prints its address."""
        words = ["bash", "-c", f"exec {line}"]
        with subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True) as dev:
            assert dev.stdout is not None
            assert dev.stdout.readline().startswith("http://127.0.0.1:")
            dev.send_signal(signal.SIGINT)
            # Read the rest before the pipe closes: a write to a closed pipe fails.
            dev.communicate(timeout=SECONDS)
        assert dev.returncode == 0

    def serve(self, line: str, port: int) -> None:
        """Start a service, and wait until it is ready."""
        started = subprocess.Popen(
            ["bash", "-c", f"exec env {line}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        self._services.append(started)
        ready = f"http://127.0.0.1:{port}{READY_PATH}"
        self.run(f"curl -sf -o /dev/null --retry 60 --retry-delay 1 --retry-all-errors {ready}")

    def stop_services(self) -> None:
        for process in self._services:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def on_a_free_port(text: str) -> tuple[int, str]:
    """Return a port, and commands that serve and call on it."""
    port = free_port()
    return port, text.replace(":8000/", f":{port}/").replace("roundtrip serve", f"roundtrip serve --port {port}")


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "bash"]


def lines_of(block: Block) -> Iterator[str]:
    yield from block.text.replace("\\\n", " ").splitlines()
