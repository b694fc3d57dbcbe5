"""Other sites, other users and hostile servers cannot drive the playground, nor run anything on its page."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.conftest import Tab, expect
from tests.browser.playground.conftest import Playing, Start, begin, behind, ended, open_card, press
from tests.kit.waiting import until_plain

CALL: Final = {"tool": "fail", "json": "{}", "era": "2026-07-28", "client": "forms", "tasks": False}
ACTIONS: Final = ("begin", "answer", "stop", "test", "decide")
WRONG_SECRET: Final = "x" * 22


def state_of(attacked: Playing) -> dict[str, Any]:
    return attacked.request("state.json").data


@pytest.fixture
def attacked(shared_cinema: Playing) -> Playing:
    def is_at_rest() -> bool:
        # Another process lists the tools, and runs the calls.
        state = state_of(shared_cinema)
        return bool(state["tools"]) and all(call["state"] != "executing" for call in state["calls"])

    until_plain(is_at_rest)
    return shared_cinema


def test_request_of_another_site_is_rejected(attacked: Playing) -> None:
    own = {"Origin": f"http://127.0.0.1:{attacked.port}", "Content-Type": "application/json"}
    foreign: list[dict[str, str]] = [
        {"Content-Type": own["Content-Type"]},
        {"Origin": own["Origin"]},
        *(
            {**own, "Origin": origin}
            for origin in ("null", "https://evil.example", "http://127.0.0.1:1", "http://localhost")
        ),
        *({**own, "Content-Type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded")),
        *({**own, "Host": host} for host in ("evil.example", "127.0.0.1")),
    ]
    body, before = json.dumps(CALL).encode(), state_of(attacked)["calls"]
    statuses = {
        (action, str(headers)): attacked.request(action, method="POST", body=body, headers=headers).status
        for action in ACTIONS
        for headers in foreign
    }
    assert [sent for sent, status in statuses.items() if status not in (403, 415)] == []
    assert state_of(attacked)["calls"] == before
    # The page itself may call.
    assert "call" in attacked.post("begin", CALL).data


def test_request_for_another_host_reads_nothing(attacked: Playing) -> None:
    answers = {
        (place, host): attacked.request(place, headers={"Host": host})
        for place in ("", "state.json", "call?id=x")
        for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]", "")
    }
    assert [one for one, got in answers.items() if got.status != 403 or len(got.body) >= 200] == []


def test_no_other_path_leads_anywhere(attacked: Playing) -> None:
    secret = attacked.secret
    assert len(secret) == 22
    places = ("/", "/state.json", f"/{WRONG_SECRET}/", f"/{secret[:-1]}/", f"/%2e%2e/{secret}/", "//")
    assert [place for place in places if attacked.request(place).status != 404] == []
    assert attacked.post(f"/{WRONG_SECRET}/begin", CALL).status == 404
    # Nor does any path behind the secret lead to a file.
    places = (
        *("../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/", "web/page.css", "call?id=../../etc/passwd"),
        *("call.json", "trace", "place.json", "\\..\\x", "call?id=%00"),
    )
    answers = {place: attacked.request(place) for place in places}
    missing = (404, b"there is no such page or call\n")
    assert [place for place, answer in answers.items() if (answer.status, answer.body) != missing] == []


def test_other_methods_are_rejected(attacked: Playing) -> None:
    methods = ("PUT", "DELETE", "OPTIONS", "PATCH", "NONSENSE")
    answers = {method: attacked.request("begin", method=method) for method in methods}
    assert [method for method, answer in answers.items() if answer.status != 405] == []
    assert [method for method, answer in answers.items() if "access-control-allow-origin" in answer.headers] == []


BODIES: Final = (
    *("", "[]", "{", "null", '{"tool": 1}', '{"tool": "fail"}', '{"tool": "nothing"}', '{"tool": "book", "fields": 1}'),
    *('{"call": "c0", "question": "q1"}', '{"call": {}, "question": {}}', "[" * 100_000, '{"tool": NaN}'),
    '{"tool": "book", "json": "{\\"film\\": 1e999}", "era": "2026-07-28", "client": "forms"}',
    '{"tool": "book", "fields": {"FIELD": ["\\ud800"]}, "era": "2026-07-28", "client": "forms"}',
)


def test_malformed_bodies_get_a_sentence(attacked: Playing) -> None:
    book = next(tool for tool in state_of(attacked)["tools"] if tool["name"] == "book")
    own = {"Origin": f"http://127.0.0.1:{attacked.port}", "Content-Type": "application/json"}
    wrong: list[tuple[str, str]] = []
    for body in BODIES:
        sent = body.replace("FIELD", book["fields"][0]["id"]).encode()
        for action in ACTIONS:
            answer = attacked.request(action, method="POST", body=sent, headers=own)
            if answer.status != 200 or not {"error", "errors"} & answer.data.keys():
                wrong.append((action, body[:80]))
    assert wrong == []
    assert attacked.post("begin", {"tool": "x" * (5 * 2**20)}).status == 413


def test_responses_forbid_framing_sniffing_and_caching(attacked: Playing) -> None:
    for place in ("", "state.json", "nothing"):
        headers = attacked.request(place).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_endpoint_of_the_server_has_a_secret_of_its_own(attacked: Playing) -> None:
    """Other users can see command lines: none has the page's address, nor that of the server."""
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    workers = [line for line in lines if b"roundtrip.cli.running.dev" in line]
    assert workers
    assert not any(attacked.secret.encode() in line or b"7f7f" in line for line in workers)
    assert not any(b"/mcp" in line.replace(b'"path":"/mcp"', b"") for line in workers)


def test_texts_of_a_hostile_server_stay_texts(tab: Tab, start: Start) -> None:
    playing = start("hostile.py")
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
    press(tab, "Make a test from this call")
    # Its test runs in a process of its own.
    expect(tab.page.locator("#test")).to_contain_text("The test passes")
    assert {file.name for file in playing.folder.iterdir()} - {"__pycache__"} == {"hostile.py", "test_tmp_evil.py"}
