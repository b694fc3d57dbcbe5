"""Run `roundtrip ui` in a process, and send requests to its pages."""

import base64
import http.client
import json
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from roundtrip.cli import main
from tests.kit.forks import PipedProcess, run_piped
from tests.kit.hosts import ROOT, WAIT

__all__ = ["UiAnswer", "UiProcess", "basic_auth", "run_ui"]


@dataclass(frozen=True, slots=True)
class UiAnswer:
    """Response from the pages."""

    status: int
    headers: Message
    body: bytes

    @property
    def data(self) -> Any:
        """Return the response's JSON."""
        return json.loads(self.body)


class UiProcess:
    """Running command, with the address that it printed."""

    def __init__(self, running: PipedProcess) -> None:
        self._process = running.process
        self._stderr = running.stderr
        # The pipe closes when the process ends, so this cannot wait forever.
        self.url = running.stdout.readline().strip()
        self.note = running.stdout.readline().strip()

    @property
    def port(self) -> int:
        """Return the pages' port."""
        return urlsplit(self.url).port or 0

    @property
    def secret(self) -> str:
        """Return the secret in the address."""
        return urlsplit(self.url).path.strip("/")

    def request(
        self, place: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> UiAnswer:
        """Request a path, relative to the secret unless it begins with a slash."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        try:
            path = place if place.startswith("/") else f"/{self.secret}/{place}"
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return UiAnswer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def post(self, place: str, asked: Any, **headers: str) -> UiAnswer:
        """Send a change like a page."""
        sent = {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json", **headers}
        return self.request(place, method="POST", body=json.dumps(asked).encode(), headers=sent)

    def end(self) -> int:
        """End the command like Ctrl-C, and return its exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(WAIT)

    def errors(self) -> str:
        """Return what the command wrote to its error output. Call this after it has ended."""
        return self._stderr.read()


@contextmanager
def run_ui(*arguments: str) -> Generator[UiProcess]:
    """Run `roundtrip ui` inside a `with` block."""
    with run_piped(main, "ui", *arguments, cwd=ROOT) as running:
        yield UiProcess(running)


def basic_auth(name: str, token: str) -> dict[str, str]:
    """Return the header for a name and a token."""
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{token}'.encode()).decode()}"}
