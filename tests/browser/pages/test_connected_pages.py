"""Pages and inbox of a whole server in a real Chromium: its tools ask, its workers go on, its client gets results."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser

from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import LedgerDown
from roundtrip.testing import Clock
from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.pages.conftest import HOSTILE, LONG, has_tall_button, log_in, markup_of, press, see
from tests.browser.pages.connected import MAX_AGE_SECONDS, Asked, ConnectedShop, connected_shop

ANSWERED = "Nothing was sent this time: the question was already answered, or it has changed."
NOTHING = "There is nothing to answer here"


@pytest.fixture(scope="module")
def running() -> Generator[ConnectedShop]:
    with connected_shop() as shop:
        yield shop


@pytest.fixture
def shop(running: ConnectedShop, tab: Tab) -> ConnectedShop:
    running.orders.clear()
    log_in(tab.page, running)
    return running


@contextmanager
def outage(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let the store of calls fail."""

    async def down(*_: Any, **__: Any) -> Any:
        raise LedgerDown("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(type(MemoryLedger().tasks), "load", down)
        yield


def test_outage_loses_nothing_that_was_sent(tab: Tab, shop: ConnectedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tab.page
    page.goto(shop.ask("twice").link)
    for question, text in (("Your name?", "Ada <b>\"'"), ("Your town?", "Paris & Rome")):
        see(page, question)
        with outage(monkeypatch):
            # It looks again by itself.
            page.reload()
            see(page, "This page is temporarily unavailable")
        see(page, question)
        page.get_by_role("textbox").fill(text)
        with outage(monkeypatch):
            press(page, "Answer")
            see(page, "This page is temporarily unavailable")
            press(page, "Send again")
            see(page, "This page is temporarily unavailable")
        press(page, "Send again")
    see(page, "Done")
    assert shop.orders == ["Ada <b>\"', Paris & Rome"]


def test_all_kinds_of_questions_reach_the_tool_and_texts_run_nowhere(tab: Tab, shop: ConnectedShop) -> None:
    asked, page = shop.ask("order", client=HOSTILE, title=HOSTILE), tab.page
    page.goto(asked.link)
    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    assert (markup_of(page), "{{7*7}}" in tab.text("main")) == (0, True)
    press(page, "Yes")
    press(page, "Answer")
    expect(page.locator(".summary")).to_be_focused()
    assert (markup_of(page), "{{7*7}}" in tab.text("main")) == (0, True)
    page.get_by_label("Name on the parcel").fill(HOSTILE[:40])
    page.get_by_label("bike").check()
    press(page, "Answer")
    page.get_by_label("Your answer").fill(HOSTILE)
    press(page, "Answer")
    see(page, "Is this right?")
    expect(page.get_by_role("textbox")).to_have_value(HOSTILE)
    assert markup_of(page) == 0
    page.get_by_role("textbox").fill("Ring once")
    press(page, "Answer")
    see(page, "Done")
    assert markup_of(page) == 0
    assert shop.result(asked) == f"{HOSTILE}: 1 for {HOSTILE[:40]} by bike, Ring once"
    assert shop.orders == [HOSTILE]
    assert all(request.startswith((shop.base, "data:")) for request in tab.requests)


def test_way_back_refresh_and_double_click_answer_nothing_twice(tab: Tab, shop: ConnectedShop) -> None:
    asked, page = shop.ask("twice"), tab.page
    page.goto(asked.link)
    page.get_by_label("Your answer").fill("Ada")
    page.get_by_role("button", name="Answer", exact=True).dblclick(no_wait_after=True)
    see(page, "Your town?")
    page.reload()
    # If the second click came late, this is its response, to which Chromium does not go back.
    page.goto(asked.link)
    page.goto("about:blank")
    page.go_back()
    see(page, "Your town?")
    page.get_by_label("Your answer").fill("London")
    press(page, "Answer")
    see(page, "Done")
    page.reload()
    page.go_back()
    see(page, "Done")
    assert shop.result(asked) == "Ada, London"
    assert shop.orders == ["Ada, London"]


def test_second_tab_shows_what_is_asked_now(tab: Tab, shop: ConnectedShop) -> None:
    asked, other = shop.ask("twice"), tab.page.context.new_page()
    for page in (tab.page, other):
        page.goto(asked.link)
        page.get_by_label("Your answer").fill("Ada")
    press(tab.page, "Answer")
    see(tab.page, "Your town?")
    press(other, "Do not answer")
    expect(other.get_by_role("status")).to_have_text(ANSWERED)
    expect(other.get_by_role("status")).to_be_focused()
    other.get_by_label("Your answer").fill("London")
    press(other, "Answer")
    see(other, "Done")
    press(tab.page, "Answer")
    expect(tab.page.get_by_role("status")).to_have_text(ANSWERED)
    assert shop.result(asked) == "Ada, London"


def test_page_expires_with_its_call(tab: Tab, shop: ConnectedShop) -> None:
    clock = Clock()
    tab.page.goto(shop.ask("twice").link)
    tab.page.get_by_label("Your answer").fill("Ada")
    clock.advance(MAX_AGE_SECONDS + 100)
    with clock.set():
        press(tab.page, "Answer")
        see(tab.page, NOTHING)
    assert shop.orders == []


def test_page_is_for_its_user_who_logs_in_for_it(browser: Browser, shop: ConnectedShop) -> None:
    link = shop.ask("twice").link
    with browser.new_context() as context:
        page = context.new_page()
        log_in(page, shop, "eve")
        page.goto(link)
        see(page, NOTHING)
        foreign = page.content()
        # As any other address, so that nobody finds one by trying.
        for other in (f"{link[:-1]}{'x' if link[-1] != 'x' else 'y'}", f"{shop.base}/ask/{'a' * 35}"):
            page.goto(other)
            assert page.content() == foreign
        context.clear_cookies()
        page.goto(link)
        see(page, "Your name?")
        assert page.url == link
        # The pages themselves set no cookie, so there is no session to fix.
        assert [cookie.get("name") for cookie in context.cookies()] == ["user"]


def test_other_sites_neither_answer_nor_frame_a_page(tab: Tab, shop: ConnectedShop) -> None:
    link, page = shop.ask("twice").link, tab.page
    page.goto(link)
    token = page.locator("input[name=token]").get_attribute("value")
    evil = f"""
        <form method="post" action="{link}"><input name="token" value="{token}"><input name="q0-f0" value="Eve">
        <button name="decision" value="answer">Win</button></form><iframe src="{link}"></iframe>
    """
    page.context.route("https://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    page.goto("https://evil.example/")
    framed = page.frames[1]
    framed.wait_for_load_state()
    assert framed.locator("form").count() == 0
    press(page, "Win")
    see(page, "This form was sent from another page")
    page.goto(link)
    see(page, "Your name?")
    assert shop.orders == []
    tab.complaints.clear()


@pytest.fixture
def desk(tab: Tab) -> Generator[ConnectedShop]:
    """Provide a shop of its own, whose inbox a person of its finance group reads."""
    with connected_shop() as shop:
        log_in(tab.page, shop, "fay")
        yield shop
        # A page that waits would load itself again.
        tab.page.goto("about:blank")


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
    expect(tab.page.get_by_text("No approvals are waiting for you.")).to_be_visible()


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
    expect(tab.page.locator(".notice").first).to_contain_text("Nothing was recorded this time")
    expect(tab.page.locator(".notice").last).to_contain_text("Approved by fay")
    assert all(request.startswith((desk.base, "data:")) for request in tab.requests)


def test_pages_have_no_barriers_and_fit_a_phone(tab: Tab, desk: ConnectedShop, axe: Axe) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 640})

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
