"""Tasks, approvals, rejected tokens, the operator log and the fleet follow their data, and act on calls."""

import pytest

from tests.browser.conftest import Axe, Tab, expect, scroll_width
from tests.browser.ui.conftest import Open, Served
from tests.browser.ui.figures import FLEET, PAGES, TASKS


@pytest.fixture(autouse=True)
def _pages(ui: Served) -> None:
    for place, data in PAGES.items():
        ui.give(place, data)


def hrefs(tab: Tab, selector: str) -> list[str | None]:
    return [link.get_attribute("href") for link in tab.page.locator(selector).all()]


def test_task_is_acted_on_by_keyboard_while_the_list_follows(tab: Tab, ui: Served, show: Open) -> None:
    ui.give("tasks", lambda query: {**TASKS, "chosen": query.get("state", [])})
    show("tasks?state=failed")
    assert tab.text("#menu-state summary") == "State: failed"
    assert tab.text("#count") == "2 tasks. The filter counts 1000 of the stored calls"
    # One that asks is answered on its page.
    assert hrefs(tab, "#rows a") == ["call?id=t1", "call?id=t1", "call?id=t2"]
    retry = tab.page.get_by_role("button", name="Retry t2")
    retry.focus()
    tab.press("Enter")
    expect(tab.page.get_by_role("dialog", name="Retry this call?")).to_contain_text("pay t2")
    # The row is drawn again behind the dialog, and gets the focus back.
    first, second = TASKS["tasks"]
    ui.give("tasks", {**TASKS, "tasks": [{**second, "changed": "now"}, first]})
    expect(tab.page.locator("#rows tr").first).to_contain_text("now")
    ui.answers["act"] = {"done": "The call runs again."}
    tab.press("Tab", "Enter")
    expect(tab.page.locator("#acted")).to_have_text("The call runs again.")
    assert ui.posted == [("act", {"call": "t2", "action": "retry", "even_once": False})]
    ui.give("tasks", {**TASKS, "tasks": [], "error": "name a server: roundtrip ui --server MODULE:SERVER"})
    expect(tab.page.locator("#list-error")).to_contain_text("name a server")
    expect(tab.page.locator("#list-pane")).to_be_hidden()
    expect(tab.page.locator("#none")).to_be_hidden()
    expect(tab.page).to_have_url(f"{ui.url}tasks?state=failed")


def test_lists_link_to_known_calls_and_older_lines(tab: Tab, ui: Served, show: Open) -> None:
    show("rejected")
    assert hrefs(tab, "#rows a") == ["call?id=t1"]
    tab.page.locator("#menu-reason summary").click()
    tab.page.locator("#menu-reason").get_by_label("tampered").check()
    tab.page.wait_for_url(f"{ui.url}rejected?reason=tampered")
    tab.page.get_by_role("link", name="Actions").click()
    tab.page.wait_for_url(f"{ui.url}actions")
    assert hrefs(tab, "#rows a") == ["call?id=t1"]
    assert "its body may have run" in tab.text("#rows")
    tab.page.get_by_role("link", name="Older actions").click()
    tab.page.wait_for_url(f"{ui.url}actions?after=older")
    show("approvals")
    ui.answers["act"] = {"done": "A reminder was sent."}
    tab.page.get_by_role("button", name="Remind t1").click()
    tab.page.get_by_role("button", name="Send the reminder").click()
    expect(tab.page.locator("#acted")).to_have_text("A reminder was sent.")
    assert ui.posted == [("act", {"call": "t1", "action": "remind", "even_once": False})]


def test_figures_of_the_fleet_follow_and_lead_to_calls(tab: Tab, ui: Served, show: Open) -> None:
    show("fleet")
    assert tab.text("#sample") == "From the newest 10000 of 1000000 calls, 9:00 to 10:15."
    links = [
        "./?tool=book",
        "./?tool=book",
        "./?reason=reworded",
        "./?instance=ash",
        "./?instance=birch",
        "./?build=b1",
    ]
    assert hrefs(tab, "main a") == links
    assert "at most 12 begun per interval, 1 failed" in tab.text("main")
    assert "Based on 1000 stored calls." in tab.text("main")
    assert tab.page.locator("svg.minutes rect.calls").count() == 3
    assert "at least 2s behind birch" in tab.text("main")
    tab.page.get_by_role("link", name="ash").focus()
    tab.page.get_by_text("As a table").click()
    tab.page.get_by_role("link", name="ash").focus()
    more = [*FLEET["instances"], {**FLEET["instances"][1], "name": "cedar", "calls": 240}]
    ui.give("fleet", {**FLEET, "instances": more, "keys": None, "minutes": [["10:15", 3, 0]]})
    expect(tab.page.get_by_role("link", name="cedar")).to_be_visible()
    expect(tab.page.get_by_role("link", name="ash")).to_be_focused()
    expect(tab.page.get_by_role("heading", name="Keys")).to_be_hidden()
    expect(tab.page.locator("details")).to_have_attribute("open", "")
    expect(tab.page.locator("details tbody tr")).to_have_count(1)


def test_tables_have_no_barriers_and_fit_a_phone(tab: Tab, show: Open, axe: Axe) -> None:
    for place in PAGES:
        for width in (1280, 390):
            tab.page.set_viewport_size({"width": width, "height": 3000})
            show(place)
            axe()
            assert scroll_width(tab.page) == width, place
