"""The playground in Chromium: tools, questions and results, by keyboard, on a phone, in light and dark."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import DRAWINGS, Axe, Tab, expect, scroll_width
from tests.browser.playground.conftest import Playing, answer, begin, behind, call, choose, ended, open_card, press


def test_states_token_messages_and_trace_follow_a_call(tab: Tab, cinema: Playing) -> None:
    choose(tab, "book")
    tab.page.get_by_role("textbox", name="Film").fill("Solaris")
    tab.page.get_by_role("textbox", name="Seats").fill("3")
    call(tab)
    expect(open_card(tab)).to_contain_text("Which row for Solaris?")
    open_card(tab).get_by_label("back").check()
    expect(tab.page.locator("#states li").last).to_have_text(re.compile("awaiting_input"))
    assert tab.page.locator("#machine .rt-current").get_attribute("data-state") == "awaiting_input"
    behind(tab, "Token")
    expect(tab.page.locator("#tokens article")).to_have_count(1)
    assert "valid" in tab.text("#tokens")
    press(tab, "Answer")
    expect(tab.page.locator("#tokens article")).to_have_count(2)
    assert '{"value": "back"}' in tab.text("#tokens")
    behind(tab, "Messages")
    titles = tab.page.locator("#messages summary").all_inner_texts()
    assert [title.split()[1] for title in titles] == [
        *("tools/call", "result", "tools/call"),
        *("notifications/progress", "notifications/message", "result"),
    ]
    behind(tab, "Trace")
    expect(tab.page.locator("#place")).to_have_text("Round 2 (2 of 2)")
    assert tab.page.locator(".message.here text").all_text_contents()
    tab.page.locator("#grid [aria-current]").press("Home")
    expect(tab.page.locator("#place")).to_have_text("Round 1 (1 of 2)")
    with tab.page.expect_popup() as opened:
        tab.page.get_by_role("link", name="Open the call page").click()
    opened.value.wait_for_selector("html[data-ready]")
    assert opened.value.locator("#tool").inner_text() == "book"
    opened.value.close()
    expect(open_card(tab)).to_contain_text("Any snacks?")
    open_card(tab).get_by_label("popcorn").check()
    open_card(tab).get_by_label("nuts").check()
    press(tab, "Answer")
    ended(tab, "completed")
    assert "3 seats for Solaris, back, with popcorn, nuts" in tab.text("#result")
    happened = tab.text("#happened")
    assert [text for text in ("asking for snacks", "row is known") if text not in happened] == []
    assert tab.page.locator("#happened progress").first.get_attribute("value") == "0.5"
    assert '{"wanted": ["popcorn", "nuts"]' in tab.text("#questions")


def test_older_revision_asks_over_the_open_connection(tab: Tab, cinema: Playing) -> None:
    tab.page.get_by_label("Revision").select_option("2025-11-25")
    begin(tab, "review")
    expect(open_card(tab)).to_contain_text("Which day?")
    open_card(tab).get_by_label("tomorrow").check()
    press(tab, "Answer")
    expect(open_card(tab)).to_contain_text("Is this right?")
    assert open_card(tab).get_by_label("tomorrow").is_checked()
    open_card(tab).get_by_label("today").check()
    press(tab, "Answer")
    ended(tab, "completed")
    assert "on today" in tab.text("#result")
    behind(tab, "States")
    expect(tab.page.locator("#states li").last).to_have_text("completed")
    assert "live" in tab.text("#facts")
    behind(tab, "Messages")
    assert "elicitation/create" in tab.text("#messages")
    behind(tab, "Token")
    assert "no token yet" in tab.text("#tokens")


@pytest.mark.parametrize(("button", "action"), [("Decline", "declined"), ("Cancel", "cancelled")])
def test_confirmation_can_be_declined_or_cancelled(tab: Tab, cinema: Playing, button: str, action: str) -> None:
    begin(tab, "delete")
    expect(open_card(tab)).to_contain_text('Delete "all"?')
    press(tab, button)
    ended(tab, "declined")
    assert action in tab.text("#questions")
    expect(tab.page.locator("#states li").last).to_have_text("declined")


def test_page_is_a_link_that_the_user_opens(tab: Tab, cinema: Playing) -> None:
    tab.page.get_by_label("The client shows").select_option("links")
    begin(tab, "pay")
    link = open_card(tab).get_by_role("link", name="Open the page")
    expect(link).to_have_attribute("href", "https://pay.example/1")
    assert link.get_attribute("rel") == "noopener noreferrer"
    press(tab, "I visited the page")
    ended(tab, "completed")
    assert "accept" in tab.text("#result")
    # It can be asked nothing else.
    begin(tab, "delete")
    ended(tab, "failed")
    assert "-32021" in tab.text("#failure")


def test_call_that_becomes_a_task_is_followed(tab: Tab, cinema: Playing) -> None:
    begin(tab, "render")
    expect(tab.page.locator("#happened")).to_contain_text("task input required")
    entry = open_card(tab).get_by_role("textbox")
    entry.fill("many")
    press(tab, "Answer")
    expect(entry).to_have_attribute("aria-invalid", "true")
    expect(entry).to_be_focused()
    expect(entry).to_have_value("many")
    expect(open_card(tab)).to_contain_text("It must be a whole number")
    answer(tab, "4")
    assert "rendered at 4" in tab.text("#result")
    behind(tab, "Messages")
    assert "tasks/get" in tab.text("#messages")


def test_task_can_be_stopped(tab: Tab, cinema: Playing) -> None:
    begin(tab, "render")
    open_card(tab).wait_for()
    press(tab, "Stop")
    ended(tab, "cancelled")
    behind(tab, "Messages")
    assert "tasks/cancel" in tab.text("#messages")


def test_form_of_a_tool_follows_its_schema(tab: Tab, cinema: Playing) -> None:
    choose(tab, "search")
    form = tab.page.locator("#tool-form")
    press(tab, "Call")
    expect(form).to_contain_text("Choose one.")
    form.get_by_label("comedy").check()
    form.get_by_role("textbox", name="Year").fill("x")
    form.get_by_role("textbox", name="Tags").fill('["old", "slow"]')
    press(tab, "Call")
    expect(form).to_contain_text("It must be a whole number")
    form.get_by_role("textbox", name="Year").fill("1972")
    form.get_by_label("Yes").check()
    call(tab)
    ended(tab, "completed")
    result = re.sub(r"\s+", " ", tab.page.locator("#result").text_content() or "")
    assert '"genre": "comedy", "year": 1972, "tags": [ "old", "slow" ], "exact": true' in result


def test_arguments_can_be_json(tab: Tab, cinema: Playing) -> None:
    choose(tab, "search")
    tab.page.get_by_text("As JSON", exact=True).click()
    entry = tab.page.get_by_label("Arguments as JSON")
    entry.fill("{")
    press(tab, "Call")
    expect(tab.page.locator("#tool-form")).to_contain_text("arguments must be a JSON object")
    expect(entry).to_have_value("{")
    entry.fill('{"genre": "opera"}')
    call(tab)
    ended(tab, "failed")
    assert "genre" in tab.text("#result")


def test_results_show_pictures_sounds_and_files(tab: Tab, cinema: Playing) -> None:
    begin(tab, "media")
    ended(tab, "completed")
    result = tab.page.locator("#result")
    assert result.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    expect(result.locator("audio")).to_have_js_property("error", None)
    with tab.page.expect_download() as started:
        press(tab, "Save notes.txt")
    assert started.value.suggested_filename == "notes.txt"
    assert started.value.path().read_text() == "a file"
    expect(result.get_by_role("link")).to_have_attribute("href", "https://films.example/1")
    assert "javascript:alert(1)" in result.inner_text()


def test_earlier_call_can_be_looked_at(tab: Tab, cinema: Playing) -> None:
    begin(tab, "fail")
    ended(tab, "failed")
    begin(tab, "media")
    ended(tab, "completed")
    tab.page.locator("#call-list button", has_text="fail").first.click()
    expect(tab.page.locator("#conversation-title")).to_have_text("Call of fail, 2026-07-28")
    assert "sold out" in tab.text("#result")


def test_page_can_be_loaded_again_in_the_middle_of_a_call(tab: Tab, cinema: Playing) -> None:
    begin(tab, "delete")
    open_card(tab).wait_for()
    cinema.open(tab)
    press(tab, "Accept")
    ended(tab, "completed")


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


@pytest.mark.parametrize("act", [ask, show_media, make_mistakes, ask_a_model, show_error])
def test_page_has_no_barriers(tab: Tab, cinema: Playing, axe: Axe, act: Callable[[Tab], None]) -> None:
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
        ended(tab, "cancelled")


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
    ended(tab, "cancelled")
