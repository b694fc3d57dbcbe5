"""The page of a call operates it: actions ask first, questions can be answered, and a fork stands beside the record."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Locator

from roundtrip.playground.forms import ShownForm
from roundtrip.trace.page.data import data_of
from tests.browser.conftest import DRAWINGS, Axe, Tab, expect, scroll_width
from tests.browser.ui.conftest import Open, Served
from tests.browser.ui.figures import FORK
from tests.unit.trace.tales import Tale, question

SEATS: Final = ShownForm(
    "seats",
    {
        "type": "object",
        "properties": {"seats": {"type": "integer", "title": "Seats"}, "note": {"type": "string", "title": "Note"}},
        "required": ["seats"],
    },
)


def tale() -> Tale:
    told = Tale("c1").began(1).asked(question("row", message={"value": "Which row?"}))
    taken = [{"key": "row", "action": "accept", "how": "taken", "data": {"value": {"value": "A"}}}]
    told.began(2).asked(question("seats", message={"value": "How many seats?"}), answers=taken)
    taken = [{"key": "seats", "action": "accept", "how": "taken", "data": {"value": {"seats": 2}}}]
    return told.began(3, "birch").asked(question("snack", message={"value": "Any snacks?"}), answers=taken)


def data(shown: Tale | None = None, **parts: Any) -> dict[str, Any]:
    stored = {
        "state": "asking",
        "facts": [["Created", "3 m ago"], ["Ledger", "redis"]],
        "actions": ["cancel", "retry", "expire", "remind", "answer"],
        "questions": [
            {"key": "seats", "message": "How many seats?", "fields": SEATS.data(), "url": False},
            {"key": "login", "message": None, "fields": None, "url": True},
        ],
    }
    operated: dict[str, Any] = {
        "stored": stored,
        "actions": [],
        "fork": {"rounds": [1, 2, 3], "run": True},
        "fork_why": "",
    }
    return {**data_of((shown or tale()).call()), **operated, **parts}


@pytest.fixture
def page(ui: Served, show: Open) -> Callable[..., None]:
    """Return a function that opens the page with some data."""

    def opened(**parts: Any) -> None:
        ui.give("call", data(**parts))
        show("call?id=c1")

    return opened


def button(tab: Tab, name: str) -> Locator:
    return tab.page.get_by_role("button", name=name, exact=True)


def test_action_asks_first_and_says_its_outcome(tab: Tab, ui: Served, page: Callable[..., None]) -> None:
    page()
    dialog = tab.page.get_by_role("dialog", name="Retry this call?")
    assert "Ledger" in tab.text("#stored-facts")
    assert tab.page.locator("#log").is_hidden()
    button(tab, "Retry c1").click()
    expect(button(tab, "Go back")).to_be_focused()
    expect(dialog).to_contain_text("order c1")
    tab.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button(tab, "Retry c1")).to_be_focused()
    assert ui.posted == []

    ui.answers["act"] = {"error": "the call must be failed, got asking; cancel it first"}
    tab.press("Enter")
    tab.page.get_by_label("Even if its body may already have run").check()
    button(tab, "Retry the call").click()
    expect(tab.page.locator("#acted")).to_have_text("the call must be failed, got asking; cancel it first")
    assert ui.posted.pop() == ("act", {"call": "c1", "action": "retry", "even_once": True})

    # By keyboard; the other actions send no permission.
    ui.answers["act"] = {"done": "The call is canceled."}
    button(tab, "Cancel c1").focus()
    tab.press("Enter", "Tab", "Enter")
    expect(tab.page.locator("#acted")).to_have_text("The call is canceled.")
    assert ui.posted == [("act", {"call": "c1", "action": "cancel", "even_once": False})]
    line = {"at": "10:15", "by": "ana", "action": "cancel", "outcome": "done", "why": ""}
    ui.give("call", data(stored=None, actions=[line]))
    expect(tab.page.locator("#stored")).to_be_hidden()
    expect(tab.page.locator("#log-lines")).to_contain_text("ana")


def test_question_is_answered_with_its_form(tab: Tab, ui: Served, page: Callable[..., None]) -> None:
    page()
    field = SEATS.data()[0]["id"]
    note = SEATS.data()[1]["id"]
    seats = tab.page.get_by_role("textbox", name="Seats")
    seats.fill("many")
    # Keys of the steps are letters in a form, and an update leaves the texts in their places.
    tab.page.get_by_label("Note (optional)").focus()
    tab.page.keyboard.type("jk")
    ui.give("call", data(tale().began(4).ended()))
    expect(tab.page.locator("#state")).to_contain_text("completed")
    expect(seats).to_have_value("many")
    expect(tab.page.get_by_label("Note (optional)")).to_be_focused()
    assert tab.text("#place") == "Round 1 (1 of 4)"

    ui.answers["answer"] = {"errors": {field: "Write a whole number."}}
    tab.press("Enter")
    expect(seats).to_have_attribute("aria-invalid", "true")
    expect(seats).to_be_focused()
    expect(seats).to_have_value("many")
    expect(tab.page.locator("#stored-questions")).to_contain_text("Write a whole number.")
    sent = {"call": "c1", "key": "seats", "action": "accept", "fields": {field: ["many"], note: ["jk"]}}
    assert ui.posted.pop() == ("answer", sent)
    ui.answers["answer"] = {"done": "Answered seats."}
    seats.fill("3")
    button(tab, "Answer").click()
    expect(tab.page.locator("#acted")).to_have_text("Answered seats.")
    assert ui.posted.pop()[1]["fields"][field] == ["3"]

    assert "on a page, not here" in tab.page.locator("#stored-questions article").last.inner_text()
    decline = tab.page.get_by_role("form", name="Answer to seats").get_by_role("button", name="Decline")
    ui.answers["answer"] = {"error": "it has ended already"}
    decline.click()
    expect(tab.page.locator("#stored-questions [role=alert]")).to_have_text("it has ended already")
    expect(decline).to_be_focused()
    assert ui.posted == [("answer", {"call": "c1", "key": "seats", "action": "decline", "fields": {}})]
    ui.give("call", data(stored={"state": "working", "facts": [], "actions": [], "questions": []}))
    expect(tab.page.locator("#stored-questions article")).to_have_count(0)
    expect(tab.page.locator("#stored-questions")).to_be_focused()


def test_fork_is_shown_beside_the_recorded_way(tab: Tab, ui: Served, page: Callable[..., None]) -> None:
    page()
    tab.page.get_by_label("From round").select_option("2")
    expect(tab.page.locator("#fork-lines label")).to_have_text(["seats"])
    assert "This has effects" in tab.text("#fork-form")
    tab.page.locator("#fork-lines").get_by_label("seats").fill("5")
    ui.answers["fork"] = {"fork": FORK}
    tab.press("Enter")
    expect(tab.page.locator("#fork-said")).to_have_text(
        "Forked at round 2. The fork waits for answers to the last round."
    )
    assert ui.posted.pop() == ("fork", {"call": "c1", "at": 2, "answers": ["seats=5"], "run": False})
    rows = tab.page.locator("#forked tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    assert cells == [
        [
            "2",
            "seats\n\nHow many seats?",
            '{"seats":9007199254740993}',
            "Asked again: Must be at least 1.\n\n5 (yours)",
        ],
        ["3", "snack\n\nAny snacks?", "no answer", "not asked"],
        ["3", "sure\n\n5 seats. Sure?", "not asked", "open"],
        ["End", "", "completed: row A", "The fork waits for answers to the last round."],
    ]
    assert "No question asked for these answers: shure." in tab.text("#forked")

    # The open question gets a line, and the first answer stays.
    tab.page.locator("#fork-lines").get_by_label("sure").fill(":decline")
    tab.page.get_by_label("Run the body and steps that were not recorded").check()
    ui.answers["fork"] = {"error": "round 2 asks 'seats'"}
    button(tab, "Fork").click()
    expect(tab.page.locator("#fork-said")).to_have_text("round 2 asks 'seats'")
    assert ui.posted.pop()[1] == {"call": "c1", "at": 2, "answers": ["seats=5", "sure=:decline"], "run": True}
    ui.give("call", data(fork=None, fork_why="the call was recorded without reveal='all'"))
    expect(tab.page.locator("#fork-why")).to_contain_text("recorded without reveal='all'")
    expect(tab.page.locator("#fork-form")).to_be_hidden()


def test_approval_is_shown_as_decided(tab: Tab, page: Callable[..., None]) -> None:
    budget = {"key": "budget", "by": "finance", "message": {"value": "Refund 400?"}}
    told = Tale("c1").began(1).asked(approvals=[budget])
    page(shown=told)
    assert "waits for the approval budget by finance" in tab.text("#exchange")
    assert "the approval budget by finance" in tab.text("#facts")
    assert "No decision yet" in tab.text("#inspected")
    assert tab.text("#grid tbody th") == "budget"
    told.began(2)
    read = {"key": "budget", "by": "finance", "outcome": "rejected", "at": 1.0}
    told.ended(state="failed", decisions=[{**read, "data": {"value": {"who": "fred", "reason": "too much"}}}])
    page(shown=told)
    tab.press("Home")
    assert "✗ rejected, 1970-01-01" in tab.text("#inspected")
    assert "too much" in tab.text("#inspected")


def test_call_has_no_barriers_and_fits_a_phone(tab: Tab, ui: Served, page: Callable[..., None], axe: Axe) -> None:
    page(actions=[{"at": "10:15", "by": "ana", "action": "cancel", "outcome": "rejected", "why": "the call is over"}])
    ui.answers["fork"] = {"fork": FORK}
    button(tab, "Fork").click()
    expect(tab.page.locator("#forked table")).to_be_visible()
    for width in (1280, 390):
        tab.page.set_viewport_size({"width": width, "height": 5000})
        axe(exclude=DRAWINGS)
        assert scroll_width(tab.page) == width
    button(tab, "Retry c1").click()
    # axe cannot tell the contrast of a dialog above other texts.
    axe("color-contrast", exclude=["body > :not(main)", "main > :not(#acting)"])
