"""Operators at work: a stored call that is cancelled, answers of a test user, and forks."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from roundtrip.trace.writing.operator_log import user_of_system
from tests.browser.conftest import Tab, expect
from tests.browser.ui.asking_tasks import asked, begin, finish, run
from tests.interaction.tasks import workshops
from tests.kit.operated import UiProcess, run_ui

SHOP = "tests.interaction.tasks.workshops:shop"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setenv("ROUNDTRIP_TRACE", f"{folder}/")
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "all")
    return folder


@pytest.fixture
def ui(tab: Tab, folder: Path) -> Generator[UiProcess]:
    with run_ui("--server", SHOP, "--test-user", str(folder)) as served:
        yield served
        # A page that is open would complain that its server is gone.
        tab.page.goto("about:blank")
        assert served.end() == 130


def open_page(tab: Tab, address: str) -> None:
    tab.page.goto(address)
    tab.page.wait_for_selector("html[data-ready]")


def answer(tab: Tab, number: str) -> None:
    card = tab.page.locator("#stored-questions")
    card.get_by_role("textbox").fill(number)
    card.get_by_role("button", name="Answer").click()


def test_operator_cancels_answers_and_forks(tab: Tab, ui: UiProcess, folder: Path) -> None:
    kept, cancelled = run(begin)
    page = tab.page

    # Cancel in the list of tasks.
    open_page(tab, f"{ui.url}tasks")
    call = cancelled.partition(".")[0]
    page.get_by_role("button", name=f"Cancel {call}").click()
    page.get_by_role("button", name="Cancel the call").click()
    expect(page.locator("#acted")).to_have_text("The call is cancelled.")
    (line,) = [json.loads(text) for text in (folder / "operators.jsonl").read_text().splitlines()]
    assert (line["action"], line["call"], line["by"]) == ("cancel", call, user_of_system())
    open_page(tab, f"{ui.url}actions")
    expect(page.locator("#rows")).to_contain_text("cancel")
    page.get_by_role("link", name=call).click()
    expect(page.locator("#log-lines")).to_contain_text(user_of_system())
    expect(page.locator("#state")).to_contain_text("failed")

    # Answer another one as a test user, first wrongly.
    open_page(tab, f"{ui.url}call?id={kept.partition('.')[0]}")
    card = page.locator("#stored-questions")
    answer(tab, "many")
    expect(card).to_contain_text("It must be a whole number.")
    expect(card.get_by_role("textbox")).to_be_focused()
    answer(tab, "3")
    expect(page.locator("#acted")).to_have_text("The answer is stored.")
    run(lambda: asked(kept, "b"))
    expect(card).to_contain_text("B?")
    answer(tab, "4")
    ends: list[dict[str, Any]] = run(lambda: finish(kept, cancelled))
    assert [end["status"] for end in ends] == ["completed", "cancelled"]
    assert ends[0]["result"]["content"][0]["text"] == "3 4 7"
    expect(page.locator("#state")).to_contain_text("completed")

    # Let the recorded call go another way.
    page.get_by_role("textbox", name="a", exact=True).fill("5")
    page.get_by_role("button", name="Fork", exact=True).click()
    for text in ("5 (yours)", "3 4 7", "5 4 7"):
        expect(page.locator("#forked")).to_contain_text(text)
    # Every byte that the pages loaded came from this server.
    assert all(request.startswith(ui.url) for request in tab.requests)


def test_call_whose_transcript_is_gone_is_answered_on_its_page(tab: Tab, ui: UiProcess, folder: Path) -> None:
    kept, _ = run(begin)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    open_page(tab, f"{ui.url}tasks")
    tab.page.get_by_role("link", name=kept.partition(".")[0]).click()
    tab.page.wait_for_selector("html[data-ready]")
    expect(tab.page.locator("#tool")).to_have_text("ask_twice")
    expect(tab.page.locator("#state")).to_contain_text("awaiting_input")
    expect(tab.page.locator("#stored-state")).to_contain_text("asking")
    expect(tab.page.locator("#facts")).to_contain_text("its lines were pruned")
    answer(tab, "3")
    run(lambda: asked(kept, "b"))
    expect(tab.page.locator("#stored-questions")).to_contain_text("B?")
    answer(tab, "4")
    (end,) = run(lambda: finish(kept))
    assert end["result"]["content"][0]["text"] == "3 4 7"
    # A worker's lines are recorded again, from where the transcript begins now.
    expect(tab.page.locator("#state")).to_contain_text("completed")
