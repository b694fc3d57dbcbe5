"""Pages of a whole server in a real Chromium: its tools ask, its workers go on, its client gets the result."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page

from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import LedgerDown
from roundtrip.testing import Clock
from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.pages.conftest import HOSTILE, press
from tests.browser.pages.connected import ConnectedShop, connected_shop

ANSWERED = "This was answered already, or has changed since. Nothing was sent just now."
NOTHING = "There is nothing to answer here"
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def _running() -> Generator[ConnectedShop]:
    with connected_shop() as shop:
        yield shop


@pytest.fixture
def shop(_running: ConnectedShop, tab: Tab) -> ConnectedShop:
    _running.orders.clear()
    log_in(tab.page, _running)
    return _running


def log_in(page: Page, shop: ConnectedShop, user: str = "ada") -> None:
    page.context.add_cookies([{"name": "reader", "value": user, "url": shop.base}])


def see(page: Page, heading: str) -> None:
    # The page that waits loads itself again after three seconds.
    expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible(timeout=20_000)


def handle_of(text: str) -> str:
    (handle,) = re.findall(r"handle='([^']+)'", text)
    return handle


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
    page.goto(shop.link("twice"))
    for question, text in (("Your name?", "Ada <b>\"'"), ("Your town?", "Paris & Rome")):
        see(page, question)
        with outage(monkeypatch):
            # It looks again by itself.
            page.reload()
            see(page, "This cannot be shown just now")
        see(page, question)
        page.get_by_role("textbox").fill(text)
        with outage(monkeypatch):
            press(page, "Answer")
            see(page, "This cannot be shown just now")
            press(page, "Send again")
            see(page, "This cannot be shown just now")
        press(page, "Send again")
    see(page, "Done")
    assert shop.orders == ["Ada <b>\"', Paris & Rome"]


def test_all_kinds_of_questions_reach_the_tool(tab: Tab, shop: ConnectedShop) -> None:
    told = shop.call("order", title="Dune")
    page = tab.page
    page.goto(shop.link("order", title="Dune"))
    see(page, 'Order "Dune"?')
    press(page, "Yes")
    see(page, "How shall we send Dune?")
    page.get_by_label("Name on the parcel").fill("A")
    page.get_by_label("Copies").fill("many")
    page.get_by_label("bike").check()
    press(page, "Answer")
    expect(page.locator(".summary")).to_be_focused()
    # Everything typed is kept.
    expect(page.get_by_label("Name on the parcel")).to_have_value("A")
    expect(page.get_by_label("Copies")).to_have_value("many")
    expect(page.get_by_label("bike")).to_be_checked()
    page.get_by_label("Name on the parcel").fill("Ada")
    page.get_by_label("Copies").fill("2")
    press(page, "Answer")
    see(page, "A note for the courier of Dune?")
    page.get_by_label("Your answer").fill("Ring twice")
    press(page, "Answer")
    see(page, "Is this right?")
    expect(page.get_by_role("textbox")).to_have_value("Ring twice")
    page.get_by_role("textbox").fill("Ring once")
    press(page, "Answer")
    see(page, "Done")
    assert shop.continued(handle_of(told)) == "Dune: 2 for Ada by bike, Ring once"
    assert shop.orders == ["Dune"]
    assert all(request.startswith((shop.base, "data:")) for request in tab.requests)


def test_no_on_a_page_ends_the_call(tab: Tab, shop: ConnectedShop) -> None:
    told = shop.call("order", title="Emma")
    tab.page.goto(shop.link("order", title="Emma"))
    press(tab.page, "No, do not")
    see(tab.page, "Done")
    assert "elicitation was decline" in shop.continued(handle_of(told))
    assert shop.orders == []


def test_way_back_refresh_and_double_click_answer_nothing_twice(tab: Tab, shop: ConnectedShop) -> None:
    told, page = shop.call("twice"), tab.page
    page.goto(shop.link("twice"))
    page.get_by_label("Your answer").fill("Ada")
    page.get_by_role("button", name="Answer").dblclick(no_wait_after=True)
    see(page, "Your town?")
    page.reload()
    # If the second click came late, this is its response, to which Chromium does not go back.
    page.goto(shop.link("twice"))
    page.goto("about:blank")
    page.go_back()
    see(page, "Your town?")
    page.get_by_label("Your answer").fill("London")
    press(page, "Answer")
    see(page, "Done")
    page.reload()
    page.go_back()
    see(page, "Done")
    assert shop.continued(handle_of(told)) == "Ada, London"
    assert shop.orders == ["Ada, London"]


def test_second_tab_shows_what_is_asked_now(tab: Tab, shop: ConnectedShop) -> None:
    told, link, other = shop.call("twice"), shop.link("twice"), tab.page.context.new_page()
    for page in (tab.page, other):
        page.goto(link)
        page.get_by_label("Your answer").fill("Ada")
    press(tab.page, "Answer")
    see(tab.page, "Your town?")
    press(other, "No, do not")
    expect(other.get_by_role("status")).to_have_text(ANSWERED)
    other.get_by_label("Your answer").fill("London")
    press(other, "Answer")
    see(other, "Done")
    press(tab.page, "Answer")
    expect(tab.page.get_by_role("status")).to_have_text(ANSWERED)
    assert shop.continued(handle_of(told)) == "Ada, London"


def test_page_expires_with_its_call(tab: Tab, shop: ConnectedShop) -> None:
    link, clock = shop.link("twice"), Clock()
    tab.page.goto(link)
    tab.page.get_by_label("Your answer").fill("Ada")
    clock.advance(700)
    with clock.set():
        press(tab.page, "Answer")
        see(tab.page, NOTHING)
    assert shop.orders == []


def test_link_of_another_person_shows_nothing(tab: Tab, browser: Browser, shop: ConnectedShop) -> None:
    link = shop.link("choose", text="private")
    context = browser.new_context()
    log_in(context.new_page(), shop, "eve")
    page = context.pages[0]
    page.goto(link)
    see(page, NOTHING)
    foreign = page.content()
    # As any other address, so that nobody finds one by trying.
    for other in (f"{link[:-1]}{'x' if link[-1] != 'x' else 'y'}", f"{shop.base}/ask/{'a' * 35}"):
        page.goto(other)
        assert page.content() == foreign
    context.close()


def test_login_leads_back_to_the_page(browser: Browser, shop: ConnectedShop) -> None:
    link, context = shop.link("twice"), browser.new_context()
    page = context.new_page()
    page.goto(link)
    see(page, "Your name?")
    assert page.url == link
    # The pages themselves set no cookie, so there is no session to fix.
    assert [cookie.get("name") for cookie in context.cookies()] == ["reader"]
    context.close()


def test_keyboard_alone_gets_to_the_end(tab: Tab, shop: ConnectedShop) -> None:
    told = shop.call("order", title="Ulysses")
    tab.page.goto(shop.link("order", title="Ulysses"))
    tab.press("Tab", "Enter")
    see(tab.page, "How shall we send Ulysses?")
    tab.press("Tab")
    tab.page.keyboard.type("Ada")
    tab.press("Tab", "Tab", "Space", "Enter")
    see(tab.page, "A note for the courier of Ulysses?")
    tab.press("Tab")
    tab.page.keyboard.type("none")
    tab.press("Enter")
    see(tab.page, "Is this right?")
    tab.press("Tab", "Tab", "Enter")
    see(tab.page, "Done")
    assert shop.continued(handle_of(told)) == "Ulysses: 1 for Ada by post, none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_a_call_have_no_barriers_on_a_narrow_phone(
    tab: Tab, shop: ConnectedShop, axe: Axe, scheme: Scheme
) -> None:
    title = f"Donaudampfschifffahrtsgesellschaft {scheme}" * 2
    page = tab.page
    page.set_viewport_size({"width": 320, "height": 640})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(shop.link("order", title=title))

    def check() -> None:
        axe()
        assert scroll_width(page) == 320
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
        assert dark is (scheme == "dark")

    see(page, f'Order "{title}"?')
    check()
    press(page, "Yes")
    see(page, f"How shall we send {title}?")
    check()
    press(page, "Answer")
    expect(page.locator(".summary")).to_be_focused()
    check()
    press(page, "No, do not")
    see(page, "Done")
    check()
    page.goto(f"{shop.base}/ask/{'a' * 35}")
    see(page, NOTHING)
    check()


def test_accessibility_tree_names_every_part(tab: Tab, shop: ConnectedShop) -> None:
    tab.page.goto(shop.link("order", title="Middlemarch"))
    press(tab.page, "Yes")
    see(tab.page, "How shall we send Middlemarch?")
    expect(tab.page.locator("main")).to_match_aria_snapshot(
        """
        - main:
          - heading "How shall we send Middlemarch?" [level=1]
          - paragraph: The parcel weighs 1.2 kg.
          - text: Name on the parcel
          - paragraph: 2 to 40 characters.
          - textbox "Name on the parcel"
          - text: Copies (optional)
          - paragraph: A whole number, 1 to 9.
          - textbox "Copies (optional)": "1"
          - radiogroup "Delivery":
            - radio "post"
            - text: post
            - radio "bike"
            - text: bike
          - button "Answer"
          - button "No, do not"
        """
    )


def test_texts_of_a_model_or_a_client_run_nowhere(tab: Tab, shop: ConnectedShop) -> None:
    told = shop.call("choose", text=HOSTILE, name=HOSTILE)
    page = tab.page
    page.goto(shop.link("choose", text=HOSTILE, name=HOSTILE))
    see(page, "Questions for you")
    assert page.locator("script, main img, svg, iframe, main a").count() == 0
    assert "{{7*7}}" in tab.text("main")
    press(page, "Send answers")
    expect(page.locator(".summary")).to_be_focused()
    assert page.locator("script, main img, svg, iframe").count() == 0
    page.locator("input[type=checkbox]").first.check()
    page.get_by_label("left").check()
    press(page, "Send answers")
    see(page, "Done")
    assert page.locator("script, main img, svg, iframe").count() == 0
    assert shop.continued(handle_of(told)) == "True left"
    # A confirmation has the arguments in it.
    page.goto(shop.link("order", title=HOSTILE))
    expect(page.get_by_role("button", name="Yes")).to_be_visible()
    assert page.locator("script, main img, svg, iframe").count() == 0


def test_other_sites_neither_answer_nor_frame_a_page(tab: Tab, shop: ConnectedShop) -> None:
    link, page = shop.link("twice"), tab.page
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
    see(page, "This did not come from this page")
    page.goto(link)
    see(page, "Your name?")
    assert shop.orders == []
    tab.complaints.clear()


def test_requests_by_hand_are_turned_away(tab: Tab, shop: ConnectedShop) -> None:
    link, page = shop.link("twice"), tab.page
    page.goto(link)
    page.get_by_label("Your answer").fill("Ada")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        press(page, "Answer")
    see(page, "Your town?")
    body = sent.value.post_data or ""
    with httpx.Client(cookies={"reader": "ada"}) as http:
        form: dict[str, Any] = {"content": body, "headers": {"content-type": "application/x-www-form-urlencoded"}}
        # The same request again, and with the address of another host.
        replayed = http.post(link, **form)
        assert (replayed.status_code, "Your town?" in replayed.text) == (409, True)
        elsewhere = http.get(link, headers={"host": "evil.example"})
        assert "evil.example" not in elsewhere.text
        headers = elsewhere.headers
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
        assert "set-cookie" not in headers
        shown = http.get(link).text
        (token,) = re.findall(r'name="token" value="([^"]+)"', shown)
        answer = {"token": token, "q0-f0": "London", "decision": "answer"}
        moved = http.post(f"{link}?next=https://evil.example", data=answer, headers={"host": "evil.example"})
        assert (moved.status_code, moved.headers["location"]) == (303, link)
