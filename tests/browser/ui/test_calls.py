"""The list of calls: its filters are in its address, and updates do not disturb the reader."""

from typing import Any, Final

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.ui.conftest import Open, Served
from tests.browser.ui.served import listed, summary

WHY: Final = "Leg 2 on 'ash' failed after round 1, in its body, because KeyError: 'no hall 9' was raised."
CALLS: Final[list[dict[str, Any]]] = [
    summary("failed-1", "pay", "failed", why=WHY),
    summary("waits-1", "book", "awaiting_input", waits="seat (until 10:20)"),
    *[summary(f"done-{number}", "book", instances=["birch"]) for number in range(230)],
]


@pytest.fixture(autouse=True)
def _calls(ui: Served) -> None:
    ui.give("", listed(CALLS))


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
    assert WHY in tab.page.locator("#rows tr").first.inner_text()
    assert "waits for seat (until 10:20)" in tab.page.locator("#rows tr").nth(1).inner_text()
    assert tab.page.locator("#menu-principal").is_hidden()
    assert tab.page.locator("#clear").is_hidden()

    choose(tab, "state", "failed", "awaiting_input")
    expect(tab.page.locator("#count")).to_have_text("2 of 232 calls")
    expect(tab.page).to_have_url(f"{ui.url}?state=failed&state=awaiting_input")
    expect(tab.page.locator("#list-said")).to_have_text("2 of 232 calls")
    choose(tab, "tool", "pay")
    expect(tab.page.locator("#count")).to_have_text("1 of 232 calls")
    tab.page.reload()
    tab.page.wait_for_selector("html[data-ready]")
    assert calls(tab) == ["failed-1"]
    assert tab.text("#menu-state summary") == "State: failed, awaiting_input"

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
    tab.page.wait_for_url(f"{ui.url}?instance=birch&after=done-99")
    tab.page.get_by_text("Older calls").click()
    tab.page.wait_for_url(f"{ui.url}?instance=birch&after=done-199")
    tab.page.wait_for_selector("html[data-ready]")
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


def test_news_keep_the_focus_the_place_and_open_menus(tab: Tab, ui: Served, show: Open) -> None:
    show("")
    link = tab.page.get_by_text("done-80", exact=True)
    link.scroll_into_view_if_needed()
    tab.page.locator("#rows a", has_text="done-80").focus()
    before = top(link)
    ui.give("", listed([summary("new-1", "refund"), summary("new-2"), *CALLS]))
    expect(tab.page.locator("#count")).to_have_text("234 of 234 calls")
    expect(tab.page.locator("#rows a", has_text="done-80")).to_be_focused()
    # Windows scroll by whole pixels.
    assert abs(top(link) - before) < 1

    tab.page.locator("#menu-tool summary").focus()
    tab.press("Enter", "Tab")
    expect(tab.page.locator(":focus")).to_have_value("book")
    changed = summary("new-1", "swap", "failed", why="No money.")
    ui.give("", listed([changed, summary("new-2"), *CALLS]))
    expect(tab.page.locator("#rows tr").first).to_contain_text("No money.")
    expect(tab.page.locator("#menu-tool")).to_have_attribute("open", "")
    expect(tab.page.locator(":focus")).to_have_value("book")
    expect(tab.page.locator("#menu-tool label")).to_have_count(3)
    tab.press("Escape")
    expect(tab.page.locator("#menu-tool summary")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_list_has_no_barriers_and_fits_a_phone(tab: Tab, show: Open, axe: Axe, scheme: Any) -> None:
    tab.page.emulate_media(color_scheme=scheme)
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
    expect(tab.page.locator("#count")).to_have_text("232 of 232 calls")
    tab.press("Escape", "Tab")
    expect(tab.page.locator("#menu-state summary")).to_be_focused()
    assert tab.page.locator("#menu-tool").get_attribute("open") is None
    expect(tab.page).to_have_url(f"{ui.url}?tool=book&tool=pay")
