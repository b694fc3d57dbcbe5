"""The playground works by keyboard, on a phone, in light and in dark, and without barriers."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import DRAWINGS, Axe, Tab, expect, scroll_width
from tests.browser.playground.conftest import Playing, begin, behind, call, choose, ended, open_card, press

TABS = ("States", "Trace", "Token", "Messages", "Log")
WIDTHS = (360, 1280)


def ask(tab: Tab) -> None:
    choose(tab, "book")
    tab.page.get_by_role("textbox", name="Film").fill("Solaris")
    call(tab)
    open_card(tab).get_by_label("back").check()
    press(tab, "Answer")
    expect(open_card(tab)).to_contain_text("Any snacks?")


def show_media(tab: Tab) -> None:
    begin(tab, "media")
    ended(tab, "completed")


def make_mistakes(tab: Tab) -> None:
    choose(tab, "search")
    tab.page.get_by_role("textbox", name="Year").fill("x")
    tab.page.get_by_text("As JSON", exact=True).click()
    tab.page.get_by_text("As JSON", exact=True).click()
    press(tab, "Call")
    expect(tab.page.locator("#tool-form")).to_contain_text("Choose one.")


def ask_a_model(tab: Tab) -> None:
    begin(tab, "suggest")
    open_card(tab).wait_for()


def show_error(tab: Tab) -> None:
    begin(tab, "fail")
    ended(tab, "failed")


@pytest.mark.parametrize(
    ("act", "scheme"),
    [
        (ask, "light"),
        (ask, "dark"),
        (show_media, "dark"),
        (make_mistakes, "light"),
        (ask_a_model, "dark"),
        (show_error, "light"),
    ],
)
def test_page_has_no_barriers(tab: Tab, cinema: Playing, axe: Axe, act: Callable[[Tab], None], scheme: str) -> None:
    tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    act(tab)
    for width in WIDTHS:
        tab.page.set_viewport_size({"width": width, "height": 5000})
        for name in TABS:
            behind(tab, name)
            axe(exclude=DRAWINGS)
            assert scroll_width(tab.page) <= width, (width, name)
    # The other tests of this server begin without an open call.
    if tab.page.get_by_role("button", name="Stop", exact=True).is_visible():
        press(tab, "Stop")
        ended(tab, "stopped")


def test_everything_can_be_done_by_keyboard(tab: Tab, cinema: Playing) -> None:
    focused = tab.page.locator(":focus")
    tab.press("/")
    expect(focused).to_have_id("filter")
    tab.page.keyboard.type("book")
    tab.press("Tab")
    expect(focused).to_have_text("book")
    tab.press("Enter")
    expect(focused).to_have_accessible_name("Film")
    tab.page.keyboard.type("Solaris")
    before = tab.page.locator("#conversation").get_attribute("data-call") or ""
    tab.press("Enter")
    expect(tab.page.locator("#conversation")).not_to_have_attribute("data-call", before)
    # The question takes the focus, and its first choice has it.
    expect(focused).to_have_accessible_name("front")
    tab.press("Space", "Enter")
    expect(open_card(tab)).to_contain_text("Any snacks?")
    expect(focused).to_have_accessible_name("popcorn")
    tab.press("Space", "Tab", "Space", "Tab", "Tab")
    expect(focused).to_have_accessible_name("Note (optional)")
    tab.press("Enter")
    ended(tab, "completed")
    assert "2 seats for Solaris, front, with popcorn, tea" in tab.text("#result")
    expect(tab.page.locator("#said")).to_have_text("The call is completed.")


def test_tabs_are_reached_by_arrow_keys(tab: Tab, cinema: Playing) -> None:
    tab.page.get_by_role("tab", name="States").focus()
    tab.press("ArrowRight", "ArrowRight")
    expect(tab.page.get_by_role("tab", name="Token")).to_be_focused()
    expect(tab.page.locator("#panel-token")).to_be_visible()
    tab.press("Home", "ArrowLeft")
    expect(tab.page.get_by_role("tab", name="Log")).to_be_focused()
    expect(tab.page.locator("#panel-token")).to_be_hidden()


def test_lines_of_an_answer_are_sent_by_ctrl_enter(tab: Tab, cinema: Playing) -> None:
    begin(tab, "suggest")
    expect(open_card(tab)).to_contain_text("Which film?")
    expect(tab.page.get_by_label("The model's answer")).to_be_focused()
    tab.page.keyboard.type("Solaris")
    tab.press("Enter")
    tab.page.keyboard.type("Mirror")
    tab.press("Control+Enter")
    ended(tab, "completed")
    assert "Solaris\\nMirror" in tab.text("#result")


def test_typing_is_not_disturbed_by_news(tab: Tab, cinema: Playing) -> None:
    begin(tab, "wait")
    choose(tab, "book")
    entry: Locator = tab.page.get_by_role("textbox", name="Film")
    entry.fill("Sol")
    begin_elsewhere = tab.page.context.new_page()
    begin_elsewhere.goto(cinema.url)
    begin_elsewhere.get_by_role("button", name="fail", exact=True).click()
    begin_elsewhere.get_by_role("button", name="Call", exact=True).click()
    expect(tab.page.locator("#call-list li").first).to_contain_text("fail failed")
    begin_elsewhere.close()
    expect(entry).to_have_value("Sol")
    expect(entry).to_be_focused()
    press(tab, "Stop")
    ended(tab, "stopped")
