"""The list of calls: its filters are in its address, and updates do not disturb the reader."""

import itertools
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from roundtrip.trace.index.index import CallIndex
from roundtrip.ui.lists import Lists
from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.ui.conftest import Open, Served
from tests.unit.trace.tales import Tale, question


class Recorded:
    """Calls that were recorded, and a page that lists them."""

    def __init__(self, ui: Served, folder: Path) -> None:
        self._ui = ui
        self._path = folder / "calls.jsonl"
        self.index = CallIndex([folder])
        self._ages = itertools.count()

    def add(self, *tales: Tale) -> None:
        """Add calls, each newer than those before, or further lines of a call."""
        for tale in tales:
            age = 10 * next(self._ages)
            tale.lines = [line.model_copy(update={"at": line.at + age}) for line in tale.lines]
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(tale.write() for tale in tales)
        self.index.refresh()
        self._ui.give("", Lists(self.index).calls)


@pytest.fixture(autouse=True)
def recorded(ui: Served, tmp_path: Path) -> Generator[Recorded]:
    recorded = Recorded(ui, tmp_path)
    recorded.add(*(Tale(f"done-{number}", tool="book").began(1, "birch").ended() for number in reversed(range(230))))
    waits = Tale("waits-1", tool="book").began(1).asked(question("seat"), until=1_790_000_600.0)
    recorded.add(waits, failed(Tale("failed-1", tool="pay").began(1), "no hall 9"))
    yield recorded
    recorded.index.close()


def failed(tale: Tale, why: str) -> Tale:
    return tale.ended("failed", error={"type": "KeyError", "text": {"value": why}})


def calls(tab: Tab) -> list[str]:
    return tab.page.locator("#rows a").all_inner_texts()


def choose(tab: Tab, menu: str, *values: str) -> None:
    box = tab.page.locator(f"#menu-{menu}")
    box.locator("summary").click()
    for value in values:
        box.get_by_label(value).click()
    tab.press("Escape")


def top(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    return box["y"]


def test_filters_are_in_the_address_and_survive_a_reload(tab: Tab, ui: Served, show: Open) -> None:
    show("")
    expect(tab.page.locator("#count")).to_have_text("232 of 232 calls")
    assert "KeyError: 'no hall 9' was raised" in tab.page.locator("#rows tr").first.inner_text()
    assert "waiting for seat (expired " in tab.page.locator("#rows tr").nth(1).inner_text()
    assert tab.page.locator("#menu-principal").is_hidden()
    assert tab.page.locator("#clear").is_hidden()

    choose(tab, "state", "failed", "awaiting_input")
    expect(tab.page.locator("#count")).to_have_text("2 of 232 calls")
    expect(tab.page).to_have_url(f"{ui.url}?state=awaiting_input&state=failed")
    expect(tab.page.locator("#list-said")).to_have_text("2 of 232 calls")
    choose(tab, "tool", "pay")
    expect(tab.page.locator("#count")).to_have_text("1 of 232 calls")
    tab.page.reload()
    tab.page.wait_for_selector("html[data-ready]")
    assert calls(tab) == ["failed-1"]
    assert tab.text("#menu-state summary") == "State: awaiting_input, failed"

    tab.page.locator("#clear").click()
    expect(tab.page.locator("#count")).to_have_text("232 of 232 calls")
    expect(tab.page).to_have_url(ui.url)
    tab.page.locator("#filter-q").fill("done-22")
    expect(tab.page.locator("#count")).to_have_text("11 of 232 calls")
    expect(tab.page).to_have_url(f"{ui.url}?q=done-22")

    # A mistake in an age is said, and the filter that has it is marked.
    tab.page.locator("#filter-since").fill("soon")
    tab.press("Enter")
    expect(tab.page.locator("#list-error")).to_contain_text("since must be an age")
    expect(tab.page.locator("#filter-since")).to_have_attribute("aria-invalid", "true")


def test_older_calls_have_an_address_of_their_own(tab: Tab, ui: Served, show: Open) -> None:
    show("?instance=birch")
    assert calls(tab)[0] == "done-0"
    assert tab.page.locator("#newest").is_hidden()
    tab.page.get_by_text("Older calls").click()
    expect(tab.page.locator("#rows a").first).to_have_text("done-100")
    tab.page.get_by_text("Older calls").click()
    tab.page.wait_for_url(f"{ui.url}?instance=birch&after=*")
    expect(tab.page.locator("#rows a").first).to_have_text("done-200")
    assert len(calls(tab)) == 30
    assert tab.page.locator("#older").is_hidden()
    tab.page.get_by_text("Newest calls").click()
    tab.page.wait_for_url(f"{ui.url}?instance=birch")
    tab.page.go_back()
    tab.page.wait_for_selector("html[data-ready]")
    # Another filter begins with its newest calls.
    choose(tab, "state", "completed")
    tab.page.wait_for_url(f"{ui.url}?instance=birch&state=completed")
    expect(tab.page.locator("#rows a").first).to_have_text("done-0")


def test_news_keep_the_focus_the_place_and_open_menus(tab: Tab, show: Open, recorded: Recorded) -> None:
    show("")
    link = tab.page.get_by_text("done-80", exact=True)
    link.scroll_into_view_if_needed()
    tab.page.locator("#rows a", has_text="done-80").focus()
    before = top(link)
    recorded.add(Tale("new-1", tool="book").began(1).ended(), Tale("new-2", tool="refund").began(1))
    expect(tab.page.locator("#count")).to_have_text("234 of 234 calls")
    expect(tab.page.locator("#rows a", has_text="done-80")).to_be_focused()
    # Windows scroll by whole pixels.
    assert abs(top(link) - before) < 1

    tab.page.locator("#menu-tool summary").focus()
    tab.press("Enter", "Tab")
    expect(tab.page.locator(":focus")).to_have_value("book")
    recorded.add(failed(Tale("new-3", tool="refund").began(1), "no money"))
    expect(tab.page.locator("#rows tr").first).to_contain_text("no money")
    expect(tab.page.locator("#menu-tool")).to_have_attribute("open", "")
    expect(tab.page.locator(":focus")).to_have_value("book")
    expect(tab.page.locator("#menu-tool label")).to_have_count(3)
    tab.press("Escape")
    expect(tab.page.locator("#menu-tool summary")).to_be_focused()


def test_list_has_no_barriers_and_fits_a_phone(tab: Tab, show: Open, axe: Axe) -> None:
    show("?q=waits&q=&state=failed&state=awaiting_input")
    axe()
    tab.page.set_viewport_size({"width": 390, "height": 844})
    axe()
    tab.page.locator("#menu-tool summary").click()
    # axe cannot tell the contrast of what an open menu covers.
    axe(exclude=[".filters > :not([open])", ".heading", "main"])
    assert scroll_width(tab.page) == 390
    tab.press("Escape")
    row = tab.page.locator("#rows tr").first.bounding_box()
    assert row is not None
    assert row["width"] <= 390


def test_list_works_by_keyboard_alone(tab: Tab, ui: Served, show: Open) -> None:
    show("")
    tab.page.get_by_role("link", name="Actions").focus()
    tab.press("Tab", "Enter", "Tab", "Space")
    expect(tab.page.locator("#count")).to_have_text("231 of 232 calls")
    tab.press("Tab", "Space")
    expect(tab.page.locator("#count")).to_have_text("more than 100 of 232 calls")
    tab.press("Escape", "Tab")
    expect(tab.page.locator("#menu-state summary")).to_be_focused()
    assert tab.page.locator("#menu-tool").get_attribute("open") is None
    expect(tab.page).to_have_url(f"{ui.url}?tool=book&tool=pay")
