"""Texts of clients in every field of every page stay texts, and so do answers of the server that quote them."""

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest

from roundtrip.playground.forms import ShownForm
from roundtrip.trace.index.index import CallIndex
from roundtrip.trace.page.data import data_of
from roundtrip.ui.lists import Lists
from tests.browser.conftest import Tab, expect, scroll_width
from tests.browser.ui.conftest import Open, Served
from tests.browser.ui.figures import FORK, PAGES
from tests.unit.trace.tales import HOSTILE, Tale, question, write_tales

MARK: Final = "<img src=x onerror=alert(2)>"
KEPT: Final = {"cancel", "retry", "expire", "remind", "answer", "accept", "text"}
"""Words that select a part of the page."""
PHONE: Final = 390
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE, "b"]}},
    "required": [HOSTILE],
}


TEXTS: Final = {"": 12, "tasks": 14, "approvals": 17, "rejected": 11, "actions": 12, "fleet": 30}
"""How many texts of others each page has at least."""


def hostile(value: Any) -> Any:
    """Return the value with another text in the place of each."""
    if isinstance(value, dict):
        return {name: hostile(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [hostile(part) for part in cast("list[Any]", value)]
    return HOSTILE if isinstance(value, str) and value not in KEPT else value


def hostile_call() -> Tale:
    tale = Tale(HOSTILE, tool=HOSTILE)
    shape = {"title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE], "default": HOSTILE}
    form = {"value": {"properties": {HOSTILE: shape, "__proto__": {"title": HOSTILE}}, "required": [HOSTILE]}}
    shown = question(
        HOSTILE,
        "reworded",
        message={"value": HOSTILE},
        form=form,
        complaint={"value": HOSTILE},
        url={"value": "javascript:alert(1)"},
        former=HOSTILE,
    )
    tale.began(1, HOSTILE, arguments={"value": {HOSTILE: HOSTILE}}, build=HOSTILE, protocol=HOSTILE, within=HOSTILE)
    tale.asked(
        shown, token={"bytes": 3, "added": [HOSTILE]}, nodes=[{"key": HOSTILE, "how": "asked", "start": 0, "ms": 1}]
    )
    tale.rejected("expired", HOSTILE).began(2, HOSTILE, previous_build=HOSTILE)
    answer = {"key": HOSTILE, "action": "accept", "how": "taken", "data": {"value": {HOSTILE: HOSTILE}}}
    error = {"type": HOSTILE, "text": {"value": HOSTILE}}
    return tale.ended("failed", answers=[answer], error=error, decline=HOSTILE, result={"value": HOSTILE})


def assert_text_only(tab: Tab, *, at_least: int) -> None:
    body = tab.page.locator("body")
    shown = str(
        body.evaluate("body => [...body.children].filter(one => one.id !== 'data').map(one => one.innerText).join()")
    )
    assert shown.count(MARK) >= at_least
    assert tab.page.locator("img").count() == 0
    assert tab.page.locator("script").count() == 2
    assert "\x00" not in shown
    assert "\u202e" not in shown
    tab.page.set_viewport_size({"width": PHONE, "height": 800})
    assert scroll_width(tab.page) == PHONE
    tab.page.set_viewport_size({"width": 1280, "height": 800})


@pytest.fixture(autouse=True)
def _names(ui: Served) -> None:
    ui.user = ui.server = HOSTILE


def test_hostile_texts_stay_texts_in_lists(tab: Tab, ui: Served, show: Open, tmp_path: Path) -> None:
    write_tales(tmp_path / "calls.jsonl", Tale().began(1).asked(question("seat")))
    index = CallIndex([tmp_path])
    index.refresh()
    calls = json.loads(json.dumps(Lists(index).calls({})))
    index.close()
    pages = {"": {**calls, "next": "n", "error": ""}, **PAGES}
    for place, texts in TEXTS.items():
        ui.give(place, hostile(pages[place]))
        show(place)
        assert_text_only(tab, at_least=texts)
    show("")
    tab.page.locator("#menu-tool summary").click()
    tab.page.locator("#menu-tool input").check()
    expect(tab.page.locator("#menu-tool summary")).to_contain_text("</script>")
    tab.page.reload()
    tab.page.wait_for_selector("html[data-ready]")
    assert tab.page.locator("#menu-tool input").is_checked()
    assert "after=%3C%2Fscript" in (tab.page.locator("#older").get_attribute("href") or "")
    assert tab.page.url.startswith(f"{ui.url}?tool=%3C%2Fscript")


def test_hostile_texts_stay_texts_on_the_page_of_a_call(tab: Tab, ui: Served, show: Open) -> None:
    call = hostile_call().call()
    fields = ShownForm("f", SCHEMA).data()
    stored = {
        "state": HOSTILE,
        "facts": [[HOSTILE, HOSTILE]],
        "actions": ["cancel", "answer", HOSTILE],
        "questions": [{"key": HOSTILE, "message": HOSTILE, "fields": fields, "url": False}],
    }
    acted = {"at": HOSTILE, "by": HOSTILE, "action": HOSTILE, "outcome": HOSTILE, "why": HOSTILE}
    fork = {"rounds": [1], "run": True}
    data = {**data_of(call), "stored": stored, "actions": [acted], "fork": fork, "fork_why": ""}
    ui.give("call", data)
    show("call?id=x")
    for closed in tab.page.locator("#call details:not([open]) > summary").all():
        closed.click()
    for key in ("Home", "ArrowRight"):
        tab.press(key)
        assert_text_only(tab, at_least=20)
    kinds = set(tab.page.evaluate("[...document.body.querySelectorAll('*')].map(element => element.localName)"))
    assert not kinds & {"img", "iframe", "object", "embed", "link", "base", "style", "template"}
    tab.press("Home")
    shown = HOSTILE.replace("\x1b", "\\u{1b}").replace("\u202e", "\\u{202e}").replace("\x00", "\\u{0}")
    shown = shown.replace("\u2028", "\\u{2028}").replace("\u2029", "\\u{2029}")
    assert tab.page.locator(".message-text").first.text_content() == shown
    assert tab.page.locator("#tool").text_content() == shown

    ui.answers["act"] = {"done": HOSTILE}
    tab.page.locator("#stored-actions button").first.click()
    expect(tab.page.locator("#sure-call")).to_contain_text(MARK)
    tab.page.locator("#sure-act").click()
    expect(tab.page.locator("#acted")).to_contain_text(MARK)
    ui.answers["answer"] = {"errors": {fields[0]["id"]: HOSTILE}}
    tab.page.locator("#stored-questions button.first").click()
    expect(tab.page.locator("#stored-questions .wrong").first).to_contain_text(MARK)
    made = hostile(FORK)
    for round_ in made["rounds"]:
        round_["answers"] = round_["recorded"] = {HOSTILE: {"action": "accept", "data": {HOSTILE: HOSTILE}}}
    ui.answers["fork"] = {"fork": {**made, "at": 1, "differs": HOSTILE}}
    tab.page.locator("#fork-lines input").fill(HOSTILE.split("\x1b", 1)[0])
    tab.page.locator("#fork-form button").click()
    expect(tab.page.locator("#forked table")).to_contain_text(MARK)
    assert ui.posted[-1][1]["answers"][0].startswith(f"{HOSTILE}=</script>")
    assert_text_only(tab, at_least=30)
    ui.give("call", {**data, "fork": None, "fork_why": HOSTILE})
    expect(tab.page.locator("#fork-why")).to_contain_text(MARK)
