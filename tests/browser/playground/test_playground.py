"""The playground in Chromium: tools, questions of every kind, results, and what is behind a call."""

import re

import pytest

from tests.browser.conftest import Tab, expect
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
        tab.page.get_by_role("link", name="Open the page of this call").click()
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
    assert "none yet" in tab.text("#tokens")


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
    press(tab, "I have been there")
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
    ended(tab, "stopped")
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
    expect(tab.page.locator("#tool-form")).to_contain_text("the arguments must be a JSON object")
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
