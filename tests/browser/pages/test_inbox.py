"""The inbox in a real Chromium: deciding by keyboard, mistakes, barriers, a narrow phone, and hostile texts."""

from collections.abc import Generator

import pytest

from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.pages.conftest import HOSTILE, LONG, Scheme, has_tall_button, log_in, markup_of, press
from tests.browser.pages.connected import Asked, ConnectedShop, connected_shop


@pytest.fixture
def desk(tab: Tab) -> Generator[ConnectedShop]:
    """Provide a shop of its own, whose inbox a person of its finance group reads."""
    with connected_shop() as shop:
        log_in(tab.page, shop, "fay")
        yield shop


def ask(desk: ConnectedShop, note: str = "Emma") -> Asked:
    return desk.ask("refund", amount=5, note=note)


def test_refund_is_approved_by_keyboard_alone(tab: Tab, desk: ConnectedShop) -> None:
    asked = ask(desk)
    tab.page.goto(f"{desk.base}/approvals")
    tab.press("Tab", "Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text('Refund 5 for "Emma"?')
    expect(tab.page.get_by_label("Reason")).to_be_visible()
    tab.press("Tab")
    tab.page.keyboard.type("A fair claim")
    tab.press("Tab", "Enter")
    expect(tab.page.locator("main .notice")).to_contain_text("Approved by fay")
    assert "A fair claim" in tab.text("main")
    assert desk.result(asked) == "refunded 5 for Emma"
    # The way back and a reload decide nothing again.
    tab.page.go_back()
    tab.page.reload()
    assert tab.page.get_by_role("button").count() == 0
    tab.page.goto(f"{desk.base}/approvals")
    expect(tab.page.get_by_text("Nothing waits for you.")).to_be_visible()


def test_rejection_needs_a_reason_and_texts_run_nowhere(tab: Tab, desk: ConnectedShop) -> None:
    ask(desk, HOSTILE)
    tab.page.goto(f"{desk.base}/approvals")
    assert markup_of(tab.page) == 0
    tab.page.get_by_role("link", name="Refund 5").click()
    press(tab.page, "Reject")
    expect(tab.page.locator(".summary")).to_be_focused()
    tab.press("Tab", "Enter")
    reason = tab.page.get_by_label("Reason")
    expect(reason).to_be_focused()
    expect(reason).to_have_accessible_description(
        "Say why you reject this, so that the person who asked knows what to change"
    )
    reason.fill(HOSTILE * 30)
    press(tab.page, "Reject")
    expect(reason).to_have_value(HOSTILE * 30)
    assert markup_of(tab.page) == 0
    # Another tab decides first.
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    press(other, "Approve")
    expect(other.locator("main .notice")).to_contain_text("Approved by fay")
    reason.fill("No receipt")
    press(tab.page, "Reject")
    expect(tab.page.locator(".notice").first).to_contain_text("Nothing was decided just now")
    expect(tab.page.locator(".notice").last).to_contain_text("Approved by fay")
    assert all(request.startswith((desk.base, "data:")) for request in tab.requests)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_barriers_and_fit_a_phone(tab: Tab, desk: ConnectedShop, axe: Axe, scheme: Scheme) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 640})
    tab.page.emulate_media(color_scheme=scheme)

    def check() -> None:
        axe()
        assert scroll_width(tab.page) == 320

    tab.page.goto(f"{desk.base}/approvals")
    check()
    for note in [*(f"Emma {number}" for number in range(24)), LONG]:
        ask(desk, note)
    tab.page.goto(f"{desk.base}/approvals")
    check()
    tab.page.get_by_role("link", name="Next page").click()
    assert tab.page.locator(".inbox li").count() == 5
    check()
    tab.page.get_by_role("link", name=LONG).click()
    assert [has_tall_button(tab.page, name) for name in ("Approve", "Reject")] == [True, True]
    check()
    press(tab.page, "Reject")
    expect(tab.page.locator(".summary")).to_be_focused()
    check()
    tab.page.get_by_label("Reason").fill(LONG)
    press(tab.page, "Reject")
    expect(tab.page.locator("main .notice")).to_contain_text("Rejected by fay")
    check()
    tab.page.goto(f"{desk.base}/approvals/unknown")
    check()
