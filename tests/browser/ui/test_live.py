"""`roundtrip ui` in a real process: pages that stay current, for this machine and its user alone."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.browser.conftest import Tab, expect
from tests.kit.operated import UiProcess, run_ui
from tests.unit.trace.tales import HOSTILE, Tale, question


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    return transcripts


@pytest.fixture
def served(tab: Tab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[UiProcess]:
    # The environment may name the transcripts, too.
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(folder))
    with run_ui("--port", "0") as served:
        yield served
        # A page that is open would complain that its server is gone.
        tab.page.goto("about:blank")


def write(path: Path, tale: Tale, *, since: int = 0) -> None:
    text = "".join(tale.write().splitlines(keepends=True)[since:])
    with path.open("a", encoding="utf-8") as opened:
        opened.write(text)


def test_list_and_page_stay_current(tab: Tab, served: UiProcess, folder: Path) -> None:
    tab.page.goto(served.url)
    tab.page.wait_for_selector("html[data-ready]")
    assert tab.text("#count") == "0 of 0 calls"
    tale = Tale("abcdefghijkl").began(1, "ash").asked(question("a")).began(2, "birch").asked(question("b"))
    write(folder / "one.jsonl", tale)
    write(folder / "two.jsonl", Tale("zzz", tool="other").began(1).ended())
    tab.page.wait_for_selector("#rows tr:nth-child(2)")
    row = tab.page.locator("#rows tr", has_text="abcdefghijkl").inner_text()
    assert [part in row for part in ("awaiting_input", "order", "2", "new")] == [True] * 4
    assert tab.text("#count") == "2 of 2 calls"

    tab.page.goto(f"{served.url}?tool=other&state=completed")
    tab.page.wait_for_selector("html[data-ready]")
    assert tab.page.locator("#rows a").all_inner_texts() == ["zzz"]
    tab.page.goto(served.url)

    tab.page.get_by_text("abcdefghijkl").click()
    tab.page.wait_for_selector("html[data-ready]")
    tab.press("Home")
    assert tab.text("#place") == "Round 1 (1 of 2)"
    tale.began(3, "cedar").ended()
    write(folder / "two.jsonl", tale, since=4)
    expect(tab.page.locator("#place")).to_have_text("Round 1 (1 of 3)")
    assert "completed" in tab.text("#state")
    assert tab.text("#announced") == "One more step. The call is completed."
    tab.page.wait_for_url("**#step-1")
    assert all(request.startswith(served.url) for request in tab.requests)

    tab.page.get_by_role("link", name="Calls").click()
    tab.page.wait_for_selector("#rows tr:nth-child(2)")


def test_hostile_names_become_rows_and_pages(tab: Tab, served: UiProcess, folder: Path) -> None:
    name = f"../?id=x&seen=1#{HOSTILE}"
    write(folder / "one.jsonl", Tale(name, tool=HOSTILE).began(1, HOSTILE).asked(question("a")))
    tab.page.goto(served.url)
    tab.page.locator("#rows a").click()
    tab.page.wait_for_selector("html[data-ready]")
    assert "<img src=x onerror=alert(2)>" in tab.text("#call")
    assert tab.page.locator("img").count() == 0
    assert tab.page.url.startswith(f"{served.url}call?id=")


def test_a_page_says_when_its_server_is_gone(tab: Tab, served: UiProcess, folder: Path) -> None:
    write(folder / "one.jsonl", Tale("abc").began(1))
    tab.page.goto(f"{served.url}call?id=abc")
    assert served.end() == 130
    expect(tab.page.locator("#connection")).to_have_text("not connected: this page may be out of date")
    assert all("ERR_CONNECTION" in complaint for complaint in tab.complaints)
    tab.complaints.clear()
