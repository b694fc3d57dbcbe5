"""The server of the pages of calls answers its own user on this machine only."""

import http.client
import re
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

from roundtrip.trace.page.serving import TraceServer
from roundtrip.trace.reading.transcripts import NoTranscript
from tests.hosts import WAIT
from tests.unit.trace.tales import Tale


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Message
    body: bytes


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[TraceServer]:
    folder = tmp_path_factory.mktemp("transcripts")
    (folder / "one.jsonl").write_text(Tale("abc").began(1).write(), encoding="utf-8")
    with TraceServer([folder]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(WAIT)


def get(served: TraceServer, place: str, *, method: str = "GET", **headers: str) -> Answer:
    """Request a path, which is below the secret unless it begins with a slash."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server_port, timeout=WAIT)
    try:
        connection.request(
            method, place if place.startswith("/") else f"/{served.loopback.secret}/{place}", headers=headers
        )
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def raw(served: TraceServer, *lines: str) -> bytes:
    """Return the first line of the response to some bytes."""
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=WAIT) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    return received.splitlines()[0]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "[::1]:{port}",
        "x@127.0.0.1:{port}",
        "",
    ],
)
@pytest.mark.parametrize("place", ["", "calls.json", "call?id=abc", "/"])
def test_a_request_for_another_host_is_rejected(served: TraceServer, place: str, host: str) -> None:
    answer = get(served, place, Host=host.format(port=served.server_port))
    assert answer.status == 403
    assert b"abc" not in answer.body


def test_a_request_without_a_host_or_with_two_is_rejected(served: TraceServer) -> None:
    line, host = f"GET /{served.loopback.secret}/ HTTP/1.1", f"Host: 127.0.0.1:{served.server_port}"
    assert b" 403 " in raw(served, line.replace("1.1", "1.0"))
    assert b" 403 " in raw(served, line, host, "Host: evil.example")
    assert b" 200 " in raw(served, line, host)


def test_the_names_of_this_machine_are_answered(served: TraceServer) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert get(served, "", Host=f"{name}:{served.server_port}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "NONSENSE"])
def test_only_get_is_allowed(served: TraceServer, method: str) -> None:
    answer = get(served, "", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


def test_non_http_input_gets_an_empty_answer(served: TraceServer) -> None:
    assert raw(served, "<script>alert(1)</script> / x HTTP/9") == b"this request is not valid here"
    assert b" 400 " in raw(served, "GET /<script> /b HTTP/1.1")


def test_nothing_is_shown_without_the_secret(served: TraceServer) -> None:
    assert re.fullmatch(r"[\w-]{22}", served.loopback.secret)
    for place in ("/", "/calls.json", f"/{'x' * 22}/calls.json", f"/{served.loopback.secret[:-1]}/", "/%2e%2e/", "//"):
        answer = get(served, place)
        assert answer.status == 404
        assert b"printed" in answer.body


@pytest.mark.parametrize(
    "place", ["call", "call?id=", "call?id=nobody", "call.json?id=nobody", "other", "../etc/passwd"]
)
def test_missing_page_is_not_found(served: TraceServer, place: str) -> None:
    assert get(served, place).status == 404


@pytest.mark.parametrize("place", ["", "calls.json", "call?id=abc", "call.json?id=abc", "nothing"])
def test_responses_forbid_caching_framing_and_sniffing(served: TraceServer, place: str) -> None:
    headers = get(served, place).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_unchanged_page_is_not_sent_again(served: TraceServer) -> None:
    assert get(served, "call.json?id=abc&seen=0").status == 200
    assert get(served, "call.json?id=abc&seen=1").status == 204
    assert get(served, "calls.json?seen=1").status == 204


def test_server_listens_on_loopback_only(served: TraceServer) -> None:
    assert served.socket.getsockname() == ("127.0.0.1", served.server_port)


def test_directory_may_be_empty_but_files_must_exist(tmp_path: Path) -> None:
    with TraceServer([tmp_path]) as server:
        assert server.calls.newest_first() == []
    with pytest.raises(NoTranscript):
        TraceServer([tmp_path / "nothing.jsonl"])
