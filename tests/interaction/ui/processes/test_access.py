"""The pages of `roundtrip ui` answer their own users only, and say nothing to others."""

import json
import re
import socket
import stat
from collections.abc import Generator
from itertools import product
from pathlib import Path
from urllib.request import urlopen

import pytest

from roundtrip.cli import main
from tests.interaction.tasks import workshops
from tests.kit.hosts import WAIT
from tests.kit.operated import UiProcess, basic_auth, run_ui
from tests.kit.waiting import until_plain
from tests.unit.trace.tales import Tale

PLACES = ["", "calls.json", "call?id=abc", "call.json?id=abc", "fleet", "tasks.json"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[UiProcess]:
    folder = tmp_path_factory.mktemp("transcripts")
    (folder / "one.jsonl").write_text(Tale("abc").began(1).write(), encoding="utf-8")
    with run_ui(str(folder)) as served:
        until_plain(lambda: served.request("calls.json").data["total"] > 0)
        yield served
        assert served.end() == 130


def raw(served: UiProcess, *lines: str) -> bytes:
    """Return the response to some bytes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def status_line(served: UiProcess, *lines: str) -> bytes:
    return raw(served, *lines).splitlines()[0]


NAMES = ["evil.example", "127.0.0.1", "localhost", "127.0.0.1:1"]
HOSTS = [*NAMES, "127.0.0.1.evil.example:{port}", "[::1]:{port}", "x@127.0.0.1:{port}"]


def test_request_for_another_host_is_rejected(served: UiProcess) -> None:
    answered: list[tuple[str, str]] = []
    for host, place in product(HOSTS, [*PLACES, "/"]):
        answer = served.request(place, headers={"Host": host.format(port=served.port)})
        if answer.status != 403 or b"abc" in answer.body:
            answered.append((host, place))
    assert answered == []


def test_request_with_two_hosts_is_rejected(served: UiProcess) -> None:
    line, host = f"GET /{served.secret}/ HTTP/1.1", f"Host: 127.0.0.1:{served.port}"
    assert b" 200 " not in status_line(served, line.replace("1.1", "1.0"))
    assert b" 200 " not in status_line(served, line, host, "Host: evil.example")
    assert b" 200 " in status_line(served, line, host)
    for name in ("localhost", "LOCALHOST"):
        assert served.request("", headers={"Host": f"{name}:{served.port}"}).status == 200


@pytest.mark.parametrize("place", ["", "fleet.json", "nothing"])
def test_head_is_answered_as_get_without_a_body(served: UiProcess, place: str) -> None:
    got = served.request(place)
    head, _, body = raw(served, f"HEAD /{served.secret}/{place} HTTP/1.1", f"Host: 127.0.0.1:{served.port}").partition(
        b"\r\n\r\n"
    )
    assert body == b""
    assert head.startswith(b"HTTP/1.1 %d " % got.status)
    assert f"content-type: {got.headers['Content-Type']}".encode() in head


def test_nothing_is_shown_without_the_secret(served: UiProcess) -> None:
    assert re.fullmatch(r"[\w-]{22}", served.secret)
    assert "keep this address secret" in served.note
    for place in ("/", "/calls.json", f"/{'x' * 22}/calls.json", f"/{served.secret[:-1]}/", "/%2e%2e/", "//"):
        answer = served.request(place)
        assert answer.status == 404
        assert b"printed" in answer.body


MISSING = ["call", "call?id=", "call?id=nobody", "call.json?id=nobody", "other", "../etc/passwd", ".json", "act"]


def test_missing_pages_and_other_methods_are_refused(served: UiProcess) -> None:
    assert [place for place in MISSING if served.request(place).status != 404] == []
    answers = [served.request("", method=method) for method in ("PUT", "DELETE", "OPTIONS", "NONSENSE")]
    assert [(one.status, one.headers["Allow"]) for one in answers] == [(405, "GET, HEAD, POST")] * 4


@pytest.mark.parametrize("place", [*PLACES, "nothing"])
def test_responses_forbid_caching_framing_and_sniffing(served: UiProcess, place: str) -> None:
    headers = served.request(place).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_unchanged_data_are_not_sent_again(served: UiProcess) -> None:
    for place, mark in (("calls.json", "?"), ("call.json?id=abc", "&"), ("rejected.json", "?"), ("tasks.json", "?")):
        data = served.request(place).data
        assert served.request(f"{place}{mark}seen=0").status == 200
        assert served.request(f"{place}{mark}seen={data['live']['version']}").status == 204


def test_changes_come_from_the_pages_only(served: UiProcess) -> None:
    asked = {"call": "abc", "action": "cancel"}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{served.port}"},
        {"Origin": f"https://127.0.0.1:{served.port}"},
        {"Host": "evil.example"},
    ):
        assert served.post("act", asked, **headers).status == 403
    assert served.request("act", method="POST", body=b"{}").status == 403
    assert served.post("act", asked, **{"Content-Type": "text/plain"}).status == 415
    assert served.post("other", asked).status == 404
    answer = served.post("act", asked)
    assert (answer.status, answer.data["error"].startswith("Name the server")) == (200, True)


INVALID: list[tuple[str, object, str]] = [
    ("act", {"call": "abc", "action": "drop"}, "action must be one of"),
    ("act", {"call": 1, "action": "cancel"}, "call must be a string"),
    ("act", [], "the body must be a JSON object"),
    ("answer", {"call": "abc", "key": "k", "action": "no"}, "action must be"),
    ("fork", {"call": "abc", "at": "1"}, "`at` must be a round number"),
    ("fork", {"call": "abc", "at": True}, "`at` must be a round number"),
    ("fork", {"call": "abc", "at": 1, "answers": [1]}, "answers must be a list of texts"),
    ("fork", {"call": "abc", "at": 1}, "name the server"),
]


def test_invalid_changes_get_a_sentence(served: UiProcess) -> None:
    answers = [(served.post(place, asked), part) for place, asked, part in INVALID]
    assert [answer.status for answer, _ in answers] == [200] * len(INVALID)
    assert [part for answer, part in answers if part not in answer.data["error"]] == []


def test_body_that_is_not_json_gets_a_sentence(served: UiProcess) -> None:
    sent = {"Origin": f"http://127.0.0.1:{served.port}", "Content-Type": "application/json"}
    for body in (b"", b"{", b'{"call": NaN}', b"\xff", b"[" * 100_000):
        answer = served.request("act", method="POST", body=body, headers=sent)
        assert (answer.status, answer.data) == (200, {"error": "the body must be a JSON object"})


def test_invalid_filters_get_a_sentence(served: UiProcess) -> None:
    rules = {"since=ever": "since must be an age", "before=x": "before must be", "after=x": "after must be"}
    found = {query: served.request(f"calls.json?{query}").data for query in rules}
    assert [query for query, data in found.items() if data["calls"] or rules[query] not in data["error"]] == []
    for place in ("tasks", "tasks.json"):
        answer = served.request(f"{place}?state=running&state=bogus")
        assert (answer.status, b"state must be one of due, running, asking," in answer.body) == (400, True)
        assert b"bogus" not in answer.body
        assert served.request(f"{place}?state=running&state=").status == 200


# Named users.


def test_named_users_enter_by_their_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = tmp_path / "users"
    tokens: dict[str, str] = {}
    for name in ("ana", "ben", "ana"):
        assert main(["ui", "--users", str(users), "--add-user", name]) == 0
        before, tokens[name] = tokens.get(name), capsys.readouterr().out.strip()
        assert tokens[name] != before
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert not any(token in users.read_text() for token in tokens.values())
    (tmp_path / "one.jsonl").write_text(Tale("abc").began(1).write(), encoding="utf-8")
    arguments = ["--users", str(users), "--base-url", "https://calls.example/ops", "--host", "0.0.0.0", str(tmp_path)]
    with run_ui(*arguments) as served:
        assert served.url == "https://calls.example/ops/"
        port = int(re.search(r"port (\d+)", served.note)[1])  # type: ignore[index]
        served.url = f"http://127.0.0.1:{port}/ops/"
        host = {"Host": "calls.example"}
        right = {**host, **basic_auth("ana", tokens["ana"])}
        assert served.request("/ops/fleet.json", headers=right).data["user"] == "ana"
        assert served.request("/ops/", headers={**right, "Host": "CALLS.example"}).status == 200
        for wrong in (
            host,
            {**host, **basic_auth("ana", tokens["ben"])},
            {**host, **basic_auth("eve", tokens["ben"])},
            {**host, **basic_auth("ana", "")},
            {**host, "Authorization": f"Bearer {tokens['ana']}"},
            {**host, "Authorization": "Basic ???"},
        ):
            answer = served.request("/ops/fleet.json", headers=wrong)
            assert (answer.status, answer.headers["WWW-Authenticate"].startswith("Basic ")) == (401, True)
            assert b"abc" not in answer.body
        assert served.request("/ops/", headers=basic_auth("ana", tokens["ana"])).status == 403
        assert served.request("/other/", headers=right).status == 404
        asked = json.dumps({"call": "abc", "action": "cancel"}).encode()
        post = {**right, "Content-Type": "application/json"}
        for origin, status in (("https://calls.example", 200), ("http://calls.example", 403), ("https://evil", 403)):
            sent = served.request("/ops/act", method="POST", body=asked, headers={**post, "Origin": origin})
            assert sent.status == status
        assert served.end() == 130


LOUD = """
import logging
from roundtrip import Server

logging.basicConfig(level=logging.INFO)
logging.info("loud is loaded")
server = Server("loud")
"""


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("localhost", "localhost")])
def test_printed_address_is_that_of_the_host(tmp_path: Path, host: str, shown: str) -> None:
    with run_ui("--host", host, str(tmp_path)) as served:
        assert served.url.startswith(f"http://{shown}:{served.port}/")
        with urlopen(f"{served.url}calls.json", timeout=WAIT) as answer:
            assert json.loads(answer.read())["total"] == 0
        assert served.end() == 130


def test_server_that_sets_up_the_log_leaves_requests_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    with run_ui("--server", str(tmp_path / "loud.py"), str(tmp_path)) as served:
        assert served.request("tasks.json").status == 200
        assert served.end() == 130
        assert "loud is loaded" in (said := served.errors())
    assert "Uvicorn" not in said
    assert "Started server process" not in said


def test_folder_that_cannot_be_written_gets_a_temporary_index(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(Tale("abc").began(1).write(), encoding="utf-8")
    # A directory in its place is no index, for every user.
    (tmp_path / "index.sqlite3").mkdir()
    with run_ui(str(tmp_path)) as served:
        until_plain(lambda: served.request("calls.json").data["total"] > 0)
        assert served.end() == 130


def test_index_that_breaks_is_a_sentence_and_a_log_line(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(Tale("abc").began(1).write(), encoding="utf-8")
    with run_ui(str(tmp_path)) as served:
        until_plain(lambda: served.request("calls.json").data["total"] > 0)
        for path in tmp_path.glob("index.sqlite3*"):
            path.write_bytes(b"broken " * 5000)
        until_plain(lambda: served.request("calls.json?q=a").status != 200)
        answer = served.request("calls.json?q=a")
        assert (answer.status, b"the command's output says why" in answer.body) == (503, True)
        assert served.end() == 130


def test_store_in_the_memory_of_the_server_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    with run_ui(f"--server={workshops.__name__}:forgetful", str(tmp_path)) as served:
        assert served.end() == 130
        reason = "The server keeps its calls in process memory"
        assert f"roundtrip ui: cannot show tasks and approvals: {reason}" in served.errors()
