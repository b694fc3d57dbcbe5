"""Servers and clients of other kinds, servers that report much, and the end of the command."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from roundtrip.cli import main
from tests.browser.conftest import DRAWINGS, Axe, Tab, expect
from tests.browser.playground.conftest import (
    Playing,
    Start,
    begin,
    behind,
    call,
    choose,
    ended,
    open_card,
    playing,
    press,
    project,
)
from tests.kit.forks import run_piped
from tests.kit.hosts import WAIT, free_port


def book(tab: Tab, revision: str) -> None:
    tab.page.get_by_label("Revision").select_option(revision)
    choose(tab, "book")
    tab.page.get_by_role("textbox", name="Film").fill("Solaris")
    begin(tab, "book")
    expect(open_card(tab)).to_contain_text("Which row for Solaris?")
    open_card(tab).get_by_label("back").check()
    press(tab, "Answer")
    ended(tab, "completed")
    assert "Solaris, back" in tab.text("#result")


def nothing_of_ours(tab: Tab) -> None:
    behind(tab, "States")
    expect(tab.page.locator("#panel-states .untraced")).to_be_visible()
    behind(tab, "Messages")
    assert "tools/call book" in tab.text("#messages")


def test_server_of_the_sdk_is_called(tab: Tab, start: Start) -> None:
    playing = start("sdk_cinema.py")
    book(tab, "2026-07-28")
    behind(tab, "Token")
    assert "an SDK token" in tab.text("#tokens")
    nothing_of_ours(tab)
    press(tab, "Make a test from this call")
    expect(tab.page.locator("#test")).to_contain_text("only a roundtrip.Server records its calls")
    book(tab, "2025-11-25")
    behind(tab, "Log")
    playing.write("sdk_cinema.py", lambda text: text.replace("{film}, {row}", "{film}, {row}!"))
    expect(tab.page.locator("#log")).to_contain_text("reloaded")
    book(tab, "2026-07-28")
    assert "Solaris, back!" in tab.text("#result")
    tab.page.goto("about:blank")
    assert playing.end() == 0


def test_server_at_an_address_is_called(tab: Tab, tmp_path: Path) -> None:
    folder = project(tmp_path / "project", "cinema.py")
    port = free_port()
    with run_piped(main, "serve", "cinema.py", "--port", str(port), cwd=folder) as served:
        while "serves on" not in served.stderr.readline():
            pass
        with playing(f"http://127.0.0.1:{port}/mcp", folder=tmp_path) as running:
            running.open(tab)
            begin(tab, "delete")
            press(tab, "Accept")
            ended(tab, "completed")
            behind(tab, "Token")
            assert "confirm:delete" in tab.text("#tokens")
            assert "not checked" in tab.text("#tokens")
            assert not tab.page.get_by_role("button", name="Make a test from this call").is_visible()
            tab.page.goto("about:blank")
            assert running.end() == 0


def test_command_is_started_for_a_call(tab: Tab, tmp_path: Path) -> None:
    folder = project(tmp_path / "project", "sdk_cinema.py")
    with playing(f"{sys.executable} sdk_cinema.py", folder=folder) as running:
        running.open(tab)
        book(tab, "2025-11-25")
        nothing_of_ours(tab)
        tab.page.goto("about:blank")
        assert running.end() == 0


MISTAKES: dict[tuple[str, ...], str] = {
    ("missing.py",): "no file 'missing.py'",
    ("empty.py",): "has no server at module level",
    ("broken.py",): "ZeroDivisionError",
    ("cinema.py", "--port", "65536"): "argument --port: must be a whole number",
    ("cinema.py", "--header", "A b"): "must be written 'Name: value'",
    ("ftp://x",): "is not an http(s) address",
}


def test_mistake_is_told_at_the_terminal(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", "cinema.py")
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("1 / 0\n")
    said: dict[tuple[str, ...], str] = {}
    for arguments in MISTAKES:
        with run_piped(main, "dev", *arguments, cwd=folder) as running:
            code = running.process.wait(WAIT)
            said[arguments] = f"{code}{running.stdout.read()} {running.stderr.read()}"
    wrong = [text for arguments, text in said.items() if MISTAKES[arguments] not in text or "Traceback" in text]
    assert wrong == []
    assert [text for text in said.values() if not text.startswith("2 ")] == []


LOGIN = """
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
mcp = FastMCP("guarded", auth=StaticTokenVerifier({"secret": {"client_id": "cli", "scopes": []}}))
"""


def test_server_with_a_login_needs_a_header(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(LOGIN)
    with playing("guarded.py", folder=tmp_path) as without:
        tab.page.goto(without.url)
        expect(tab.page.locator("#broken")).to_contain_text("HTTP status 401; pass credentials with --header")
        expect(tab.page.locator("#no-tools")).to_be_hidden()
        tab.page.goto("about:blank")


@pytest.fixture(scope="module")
def _paged(tmp_path_factory: pytest.TempPathFactory) -> Generator[Playing]:
    folder = project(tmp_path_factory.mktemp("paged"), "paged.py")
    port = free_port()
    os.environ["PAGED_PORT"] = str(port)
    with playing("paged.py", "--server-port", str(port), folder=folder) as running:
        yield running
        assert running.end() == 0
    del os.environ["PAGED_PORT"]


@pytest.fixture
def paged(_paged: Playing, tab: Tab) -> Playing:
    _paged.open(tab)
    return _paged


def test_client_of_links_answers_on_the_page_of_the_server(tab: Tab, paged: Playing) -> None:
    tab.page.get_by_label("The client shows").select_option("links")
    begin(tab, "order")
    with tab.page.expect_popup() as opened:
        open_card(tab).get_by_role("link", name="Open the page").click()
    page = opened.value
    page.get_by_role("textbox").fill("3")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_text("close").first.wait_for()
    page.close()
    press(tab, "I visited the page")
    ended(tab, "completed")
    assert "Ordered 3" in tab.text("#result")


def test_client_that_shows_nothing_plays_the_model(tab: Tab, paged: Playing) -> None:
    tab.page.get_by_label("The client shows").select_option("none")
    begin(tab, "pick")
    ended(tab, "awaiting_input")
    assert "Which color?" in tab.text("#result")
    press(tab, "Fill in continue_call, as a model would")
    form = tab.page.locator("#tool-form")
    assert len(form.get_by_role("textbox", name="Handle").input_value()) > 16
    form.get_by_role("textbox", name="Answers").fill('{"color": "green"}')
    call(tab)
    ended(tab, "completed")
    assert "Picked green" in tab.text("#result")


def test_approval_is_decided_by_the_login_of_another_person(tab: Tab, tmp_path: Path, axe: Axe) -> None:
    (tmp_path / "approved.py").write_text("from tests.kit.approving import shop\n\nserver = shop()\n")
    logins = ("--header", "x-user: ann", "--approver", "authorization: Bearer token-of-fay")
    with playing("approved.py", *logins, folder=tmp_path) as played:
        played.open(tab)
        assert tab.text("#tool-list").split()[-1] == "continue_call"
        tab.page.get_by_label("The client shows").select_option("none")
        choose(tab, "refund")
        tab.page.get_by_label("Amount").fill("5")
        call(tab)
        ended(tab, "awaiting_input")
        card = tab.page.get_by_role("region", name="Approvals").get_by_role("article")
        expect(card).to_contain_text("Requested by ann.")
        tab.page.set_viewport_size({"width": 1000, "height": 5000})
        axe(exclude=DRAWINGS)
        press(tab, "Reject")
        expect(card.get_by_role("alert")).to_contain_text("Say why you reject this")
        press(tab, "Approve")
        expect(card).to_have_count(0)
        press(tab, "Fill in continue_call, as a model would")
        call(tab)
        expect(tab.page.locator("#result")).to_contain_text("refunded 5")
        tab.page.goto("about:blank")


def test_server_that_reports_much_does_not_stop_the_page(tab: Tab, paged: Playing) -> None:
    begin(tab, "count")
    ended(tab, "completed")
    behind(tab, "Messages")
    assert tab.page.locator("#messages > details").count() == 300
    assert "more messages" in tab.text("#messages-more")
    size = tab.page.evaluate("fetch('state.json').then((answer) => answer.text()).then((text) => text.length)")
    assert size < 4_000_000


def test_tools_that_a_call_adds_are_listed(tab: Tab, paged: Playing) -> None:
    tab.page.get_by_label("Revision").select_option("2025-11-25")
    begin(tab, "grow")
    expect(tab.page.locator("#tool-list")).to_contain_text("newcomer")


def test_server_that_records_elsewhere_says_so(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    playing.write("till.py", lambda text: text.replace("ledger=MemoryLedger()", "ledger=MemoryLedger(), trace=False"))
    behind(tab, "Log")
    expect(tab.page.locator("#log")).to_contain_text("reloaded")
    begin(tab, "refund")
    ended(tab, "completed")
    behind(tab, "States")
    expect(tab.page.locator("#panel-states .untraced")).to_contain_text("records elsewhere, or not at all")
    press(tab, "Make a test from this call")
    expect(tab.page.locator("#test")).to_contain_text("the server has its own trace=, so it records elsewhere")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=["closed terminal", "Ctrl-C"])
def test_end_of_the_command_removes_the_folder_of_the_trace(
    tab: Tab, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    folders = tmp_path / "temporary"
    folders.mkdir()
    monkeypatch.setenv("TMPDIR", str(folders))
    playing = start("till.py")
    begin(tab, "charge")
    open_card(tab).wait_for()
    (folder,) = folders.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.rglob("*.jsonl"))
    tab.page.goto("about:blank")
    assert playing.end(number) == 0
    assert list(folders.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can start programs of others")
def test_program_of_another_user_is_turned_away(paged: Playing) -> None:
    fetch = (
        "import sys, urllib.request as web\n"
        "asked = web.Request(sys.argv[1], headers={'X-Forwarded-For': '127.0.0.1'})\n"
        "print(web.urlopen(asked, timeout=60).read())"
    )
    command = ["/usr/bin/env", "python3", "-c", fetch, paged.url]
    thief = subprocess.run(command, capture_output=True, text=True, user=65534, timeout=WAIT)
    assert "HTTP Error 403" in thief.stderr
    assert "Playground" not in thief.stdout
