"""Other sites, other users and hostile servers cannot drive the playground, nor run anything on its page."""

import http.client
import json
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Tab, expect
from tests.browser.playground.conftest import Playing, Start, begin, behind, ended, open_card, press
from tests.kit.hosts import WAIT

JSON: Final = {"Content-Type": "application/json"}


class Attacker:
    """Program that sends requests to the port of a playground."""

    def __init__(self, playing: Playing) -> None:
        parts = urlsplit(playing.url)
        self.port, self.secret = parts.port, parts.path.strip("/")
        self.origin = f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, str, http.client.HTTPMessage]:
        """Send a request; a header `Origin_` is `Origin`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        try:
            text = body if isinstance(body, str) else json.dumps(body) if body is not None else None
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, text, named)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def post(self, action: str, body: object, **headers: str) -> tuple[int, str]:
        """Send what the page sends, but for the given headers; an empty one is left out."""
        all_headers = {"Content_Type": "application/json", "Origin": self.origin, **headers}
        kept = {name: value for name, value in all_headers.items() if value}
        status, text, _ = self.send("POST", f"/{self.secret}/{action}", body, **kept)
        return status, text

    def state(self) -> dict[str, Any]:
        return json.loads(self.send("GET", f"/{self.secret}/state.json")[1])


@pytest.fixture
def attacker(shared_cinema: Playing) -> Attacker:
    attacker = Attacker(shared_cinema)
    # Another process lists the tools, and runs the calls.
    deadline = time.monotonic() + WAIT
    while not (state := attacker.state())["tools"] or any(call["state"] == "working" for call in state["calls"]):
        assert time.monotonic() < deadline, state
    return attacker


CALL: Final = {"tool": "fail", "json": "{}", "era": "2026-07-28", "client": "forms", "tasks": False}


def test_page_itself_may_call(attacker: Attacker) -> None:
    status, text = attacker.post("begin", CALL)
    assert status == 200
    assert "call" in json.loads(text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": ""},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
    ],
)
def test_request_of_another_site_is_rejected(attacker: Attacker, headers: dict[str, str]) -> None:
    before = attacker.state()["calls"]
    for action in ("begin", "answer", "stop", "test"):
        status, _ = attacker.post(action, CALL, **headers)
        assert status in (403, 415)
    assert attacker.state()["calls"] == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]", ""])
@pytest.mark.parametrize("place", ["", "state.json", "call?id=x"])
def test_request_for_another_host_reads_nothing(attacker: Attacker, host: str, place: str) -> None:
    status, text, _ = attacker.send("GET", f"/{attacker.secret}/{place}", Host=host)
    assert (status, len(text) < 200) == (403, True)


def test_nothing_is_there_without_the_secret(attacker: Attacker) -> None:
    assert len(attacker.secret) == 22
    wrong = f"{'x' * 22}"
    for path in ("/", "/state.json", f"/{wrong}/", f"/{attacker.secret[:-1]}/", f"/%2e%2e/{attacker.secret}/", "//"):
        assert attacker.send("GET", path)[0] == 404
    path = f"/{wrong}/begin"
    assert attacker.send("POST", path, CALL, Content_Type="application/json", Origin=attacker.origin)[0] == 404


@pytest.mark.parametrize(
    "place",
    [
        *(
            "../etc/passwd",
            "..%2f..%2fetc%2fpasswd",
            "%2e%2e/",
            "web/page.css",
            "call?id=../../etc/passwd",
            "call.json",
        ),
        *("trace", "place.json", "\\..\\x", "call?id=%00"),
    ],
)
def test_paths_lead_to_no_files(attacker: Attacker, place: str) -> None:
    status, text, _ = attacker.send("GET", f"/{attacker.secret}/{place}")
    assert (status, text) == (404, "there is no such call, or page\n")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "NONSENSE"])
def test_other_methods_are_rejected(attacker: Attacker, method: str) -> None:
    status, _, headers = attacker.send(method, f"/{attacker.secret}/begin")
    assert status == 405
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "body",
    [
        *(
            "",
            "[]",
            "{",
            "null",
            '{"tool": 1}',
            '{"tool": "fail"}',
            '{"tool": "nothing"}',
            '{"tool": "book", "fields": 1}',
        ),
        *('{"call": "c0", "question": "q1"}', '{"call": {}, "question": {}}', "[" * 100_000, '{"tool": NaN}'),
        '{"tool": "book", "json": "{\\"film\\": 1e999}", "era": "2026-07-28", "client": "forms"}',
        '{"tool": "book", "fields": {"FIELD": ["\\ud800"]}, "era": "2026-07-28", "client": "forms"}',
    ],
)
def test_malformed_bodies_get_a_sentence(attacker: Attacker, body: str) -> None:
    book = next(tool for tool in attacker.state()["tools"] if tool["name"] == "book")
    body = body.replace("FIELD", book["fields"][0]["id"])
    for action in ("begin", "answer", "stop", "test"):
        status, text = attacker.post(action, body)
        assert status == 200
        assert {"error", "errors"} & json.loads(text).keys()


def test_large_body_is_rejected(attacker: Attacker) -> None:
    assert attacker.post("begin", {"tool": "x" * (5 * 2**20)})[0] == 413


def test_responses_forbid_framing_sniffing_and_caching(attacker: Attacker) -> None:
    for place in ("", "state.json", "nothing"):
        _, _, headers = attacker.send("GET", f"/{attacker.secret}/{place}")
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_endpoint_of_the_server_has_a_secret_of_its_own(attacker: Attacker) -> None:
    """Other users can see command lines: none has the page's address, nor that of the server."""
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    workers = [line for line in lines if b"roundtrip.cli.dev" in line]
    assert workers
    assert not any(attacker.secret.encode() in line or b"7f7f" in line for line in workers)
    assert not any(b"/mcp" in line.replace(b'"path":"/mcp"', b"") for line in workers)


def test_texts_of_a_hostile_server_stay_texts(tab: Tab, start: Start) -> None:
    playing = start("hostile.py")
    playing.open(tab)
    assert tab.page.locator("#tool-list button").count() == 3
    for button in tab.page.locator("#tool-list button").all():
        button.click()
    begin(tab, "plain")
    card = open_card(tab)
    expect(card).to_contain_text("<img src=x onerror=alert(1)>")
    assert "\\u{202e}" in card.inner_text()
    press(tab, "Answer")
    ended(tab, "completed")
    begin(tab, "page")
    expect(open_card(tab)).to_contain_text("javascript:alert(1)")
    assert open_card(tab).get_by_role("link").count() == 0
    press(tab, "Decline")
    ended(tab, "completed")
    for name in ("Trace", "Token", "Messages", "Log", "States"):
        behind(tab, name)
    behind(tab, "Messages")
    for summary in tab.page.locator("#messages summary").all():
        summary.click()
    assert tab.page.locator("script[src], iframe, object, embed, img[src=x]").count() == 0
    assert tab.page.evaluate("window.hacked") is None
    assert all(request.startswith((playing.url, "data:", "blob:")) for request in tab.requests)
    begin(tab, "../../../tmp/evil")
    ended(tab, "completed")
    press(tab, "Make a test of this")
    # Its test runs in a process of its own.
    expect(tab.page.locator("#test")).to_contain_text("It passes", timeout=60_000)
    assert {file.name for file in playing.folder.iterdir()} - {"__pycache__"} == {"hostile.py", "test_tmp_evil.py"}
