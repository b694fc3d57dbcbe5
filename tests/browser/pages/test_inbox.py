"""The inbox in a real Chromium: deciding by keyboard, mistakes, barriers, a narrow phone, and hostile texts."""

from collections.abc import Generator
from typing import Literal

import pytest

from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.pages.conftest import HOSTILE, press
from tests.browser.pages.desk import Desk, running

LONG = "Donaudampfschifffahrtsgesellschaft" * 4
Scheme = Literal["light", "dark"]


@pytest.fixture
def desk(tab: Tab) -> Generator[Desk]:
    with running() as found:
        tab.page.context.add_cookies([{"name": "user", "value": "fay", "url": found.url}])
        yield found


def test_refund_is_approved_by_keyboard_alone(tab: Tab, desk: Desk) -> None:
    (handle,) = desk.ask("Emma")
    tab.page.goto(f"{desk.url}/approvals")
    tab.press("Tab", "Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text('Refund 5 for "Emma"?')
    expect(tab.page.get_by_label("Reason")).to_be_visible()
    tab.press("Tab")
    tab.page.keyboard.type("A fair claim")
    tab.press("Tab", "Enter")
    expect(tab.page.locator("main .notice")).to_contain_text("Approved by fay")
    assert "A fair claim" in tab.text("main")
    assert desk.result(handle) == "refunded 5 for Emma"
    # The way back and a reload decide nothing again.
    tab.page.go_back()
    tab.page.reload()
    assert tab.page.get_by_role("button").count() == 0
    tab.page.goto(f"{desk.url}/approvals")
    expect(tab.page.get_by_text("Nothing waits for you.")).to_be_visible()


def test_rejection_needs_a_reason_and_keeps_what_was_typed(tab: Tab, desk: Desk) -> None:
    desk.ask("Emma")
    tab.page.goto(f"{desk.url}/approvals")
    tab.page.get_by_role("link", name="Refund 5").click()
    press(tab.page, "Reject")
    expect(tab.page.locator(".summary")).to_be_focused()
    tab.press("Tab", "Enter")
    expect(tab.page.get_by_label("Reason")).to_be_focused()
    expect(tab.page.get_by_label("Reason")).to_have_accessible_description(
        "Say why you reject this, so that the person who asked knows what to change"
    )
    tab.page.get_by_label("Reason").fill("x" * 2001)
    press(tab.page, "Reject")
    expect(tab.page.get_by_label("Reason")).to_have_value("x" * 2001)
    tab.page.get_by_label("Reason").fill("No receipt")
    press(tab.page, "Reject")
    expect(tab.page.locator("main .notice")).to_contain_text("Rejected by fay")


def test_second_tab_learns_that_it_is_late(tab: Tab, desk: Desk) -> None:
    desk.ask("Emma")
    tab.page.goto(f"{desk.url}/approvals")
    tab.page.get_by_role("link", name="Refund 5").click()
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    other.get_by_role("button", name="Approve", exact=True).click()
    expect(other.locator("main .notice")).to_contain_text("Approved")
    tab.page.get_by_label("Reason").fill("No")
    press(tab.page, "Reject")
    expect(tab.page.locator(".notice").first).to_contain_text("Nothing was decided just now")
    expect(tab.page.locator(".notice").last).to_contain_text("Approved by fay")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_barriers(tab: Tab, desk: Desk, axe: Axe, scheme: Scheme) -> None:
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.goto(f"{desk.url}/approvals")
    axe()
    desk.ask(*[f"Emma {number}" for number in range(25)])
    tab.page.goto(f"{desk.url}/approvals")
    axe()
    tab.page.get_by_role("link", name="Next page").click()
    assert tab.page.locator(".inbox li").count() == 5
    axe()
    tab.page.get_by_role("link", name="Refund 5").first.click()
    axe()
    press(tab.page, "Reject")
    expect(tab.page.locator(".summary")).to_be_focused()
    axe()
    press(tab.page, "Approve")
    expect(tab.page.locator("main .notice")).to_contain_text("Approved by fay")
    axe()
    tab.page.goto(f"{desk.url}/approvals/unknown")
    axe()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_shows_the_inbox_without_sideways_scrolling(tab: Tab, desk: Desk, scheme: Scheme) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 640})
    tab.page.emulate_media(color_scheme=scheme)
    desk.ask(LONG)
    tab.page.goto(f"{desk.url}/approvals")
    assert scroll_width(tab.page) == 320
    tab.page.get_by_role("link", name="Refund 5").click()
    assert scroll_width(tab.page) == 320
    for name in ("Approve", "Reject"):
        box = tab.page.get_by_role("button", name=name, exact=True).bounding_box()
        assert box is not None
        assert box["height"] >= 44
    tab.page.get_by_label("Reason").fill(LONG)
    press(tab.page, "Reject")
    expect(tab.page.locator("main .notice")).to_contain_text("Rejected by fay")
    assert scroll_width(tab.page) == 320


def test_markup_runs_nowhere(tab: Tab, desk: Desk) -> None:
    desk.ask(HOSTILE)
    tab.page.goto(f"{desk.url}/approvals")
    assert tab.page.locator("script, main img, svg, iframe").count() == 0
    tab.page.get_by_role("link", name="Refund 5").click()
    assert tab.page.locator("script, main img, svg, iframe").count() == 0
    tab.page.get_by_label("Reason").fill(HOSTILE)
    press(tab.page, "Reject")
    expect(tab.page.locator("main .notice")).to_contain_text("Rejected by fay")
    assert tab.page.locator("script, main img, svg, iframe").count() == 0
    assert all(request.startswith((desk.url, "data:")) for request in tab.requests)
