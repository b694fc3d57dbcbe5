"""Servers of the SDK and of FastMCP, at an address, and behind a command, only lack states and a trace."""

import sys
from pathlib import Path

import pytest

from roundtrip.cli import main
from tests.browser.conftest import Tab, expect
from tests.browser.playground.conftest import (
    Start,
    begin,
    behind,
    choose,
    ended,
    open_card,
    playing,
    press,
    project,
)
from tests.kit.forks import piped
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
    assert "a token of the SDK's own codec" in tab.text("#tokens")
    nothing_of_ours(tab)
    press(tab, "Make a test of this")
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
    with piped(main, "serve", "cinema.py", "--port", str(port), cwd=folder) as served:
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
            assert not tab.page.get_by_role("button", name="Make a test of this").is_visible()
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.py"], "no file 'missing.py'"),
        (["empty.py"], "has no server at module level"),
        (["broken.py"], "ZeroDivisionError"),
        (["cinema.py", "--port", "65536"], "--port must be"),
        (["cinema.py", "--header", "A b"], "must be written 'Name: value'"),
        (["ftp://x"], "is not an http(s) address"),
    ],
)
def test_mistake_is_told_at_the_terminal(tmp_path: Path, arguments: list[str], told: str) -> None:
    folder = project(tmp_path / "project", "cinema.py")
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("1 / 0\n")
    with piped(main, "dev", *arguments, cwd=folder) as running:
        assert running.process.wait(WAIT) == 2
        told_there = running.stderr.read()
        assert running.stdout.read() == ""
    assert told in told_there
    assert "Traceback" not in told_there


LOGIN = """
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

import roundtrip
from roundtrip.fastmcp import install

mcp = FastMCP("guarded", auth=StaticTokenVerifier({"secret": {"client_id": "cli", "sub": "ann", "scopes": []}}))
install(mcp, keys=["7f" * 32])


@mcp.tool
def whoami() -> str:
    return roundtrip.get_access_token().subject
"""


def test_server_with_a_login_is_played_with_a_header(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(LOGIN)
    with playing("guarded.py", folder=tmp_path) as without:
        tab.page.goto(without.url)
        expect(tab.page.locator("#broken")).to_contain_text("HTTP status 401; give credentials with --header")
        expect(tab.page.locator("#no-tools")).to_be_hidden()
        tab.page.goto("about:blank")
    with playing("guarded.py", "--header", "Authorization: Bearer secret", folder=tmp_path) as with_header:
        with_header.open(tab)
        choose(tab, "whoami")
        begin(tab, "whoami")
        ended(tab, "completed")
        assert "ann" in tab.text("#result")
        tab.page.goto("about:blank")
