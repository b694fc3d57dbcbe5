"""Serve calls as pages on this machine, and update them while their transcripts are written."""

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from roundtrip.trace.page.data import Data, data_of, summary_of
from roundtrip.trace.page.document import Page, call_page, calls_page
from roundtrip.trace.page.loopback import HOST, Loopback, headers_for
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.following import LiveCalls

__all__ = ["HOST", "TraceServer"]

_REFRESH_MS: Final = 1000
"""A page asks for updates at this interval."""
_REQUEST_TIMEOUT_SECONDS: Final = 10.0
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


class TraceServer(ThreadingHTTPServer):
    """HTTP server of the list of calls and a page for each, on the loopback interface.

    Args:
        names: Transcripts, and directories of them.
        port: The port; 0 for a free one.

    Raises:
        NoTranscript: A named file does not exist.
        OSError: The port is taken, or not allowed.
    """

    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, names: Sequence[str | Path], *, port: int = 0) -> None:
        self.calls = LiveCalls(names)
        self._lock = Lock()
        self.calls.refresh()
        super().__init__((HOST, port), _Handler)
        self.loopback = Loopback(self.server_port)

    @property
    def url(self) -> str:
        """Return the address of the list of calls."""
        return self.loopback.url

    def server_close(self) -> None:
        """Close the port and the files."""
        super().server_close()
        self.calls.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    # Content. Each request has a thread; the lock admits one at a time.

    def version(self) -> int:
        """Return a number that grows with every line."""
        with self._lock:
            self.calls.refresh()
            return self.calls.version

    def list_data(self) -> Data:
        """Return the data of the list of calls."""
        with self._lock:
            self.calls.refresh()
            calls = [summary_of(call) for call in self.calls.newest_first()]
            return {"calls": calls, "live": _live("calls.json", self.calls.version)}

    def find(self, id: str) -> tuple[TracedCall, Data] | None:
        """Return a call, with the address and version of its updates; None if there is no such call."""
        with self._lock:
            self.calls.refresh()
            found = self.calls.find(id)
        if found is None:
            return None
        call, version = found
        return call, _live(f"call.json?id={quote(id, safe='', errors='replace')}", version)


def _live(url: str, version: int) -> Data:
    return {"url": url, "version": version, "every": _REFRESH_MS}


class _Handler(BaseHTTPRequestHandler):
    """Handler of GET requests."""

    server: TraceServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _REQUEST_TIMEOUT_SECONDS
    server_version = "roundtrip"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.loopback.names(self.headers.get_all("Host") or []):
            self._send(HTTPStatus.FORBIDDEN, f"this server answers to {HOST} and localhost only\n")
            return
        address = urlsplit(self.path)
        place = self.server.loopback.place_of(address.path)
        if place is None:
            self._send(HTTPStatus.NOT_FOUND, "open the whole address that `roundtrip trace serve` printed\n")
            return
        query = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        self._answer(place, query.get("id", ""), query.get("seen", ""))

    def _answer(self, place: str, id: str, seen: str) -> None:
        """Send a page, or its data, unless the page has seen this version of them."""
        found = self.server.find(id) if place in ("call", "call.json") else None
        if place == "":
            self._send_page(calls_page(**self.server.list_data()))
        elif place == "calls.json":
            self._send_data(None if seen == str(self.server.version()) else self.server.list_data())
        elif found is None:
            self._send(HTTPStatus.NOT_FOUND, "there is no such call, or page\n")
        elif place == "call":
            self._send_page(call_page(found[0], live=found[1]))
        else:
            call, live = found
            self._send_data(None if seen == str(live["version"]) else {**data_of(call), "live": live})

    def _send_page(self, page: Page) -> None:
        self._send(HTTPStatus.OK, page.text, kind=_HTML, policy=page.policy)

    def _send_data(self, data: Data | None) -> None:
        if data is None:
            self._send(HTTPStatus.NO_CONTENT, "")
        else:
            self._send(HTTPStatus.OK, json.dumps(data, allow_nan=False), kind=_JSON)

    def _send(
        self, status: int, text: str, *, kind: str = _TEXT, policy: str = "default-src 'none'", **more: str
    ) -> None:
        body = text.encode()
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **headers_for(policy),
            **more,
        }
        if status == HTTPStatus.NO_CONTENT:
            del headers["Content-Type"], headers["Content-Length"]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an invalid request without repeating any of it."""
        del message, explain
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed\n", Allow="GET")
        else:
            self._send(code, "this request is not valid here\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, as addresses hold the secret."""
