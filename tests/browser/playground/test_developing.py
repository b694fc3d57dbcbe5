"""The developer changes the server's file while a call is open, and makes tests of calls."""

import subprocess
import sys

from tests.browser.conftest import Tab, expect
from tests.browser.playground.conftest import (
    Playing,
    Start,
    answer,
    begin,
    behind,
    call,
    choose,
    ended,
    open_card,
    press,
)
from tests.kit.hosts import WAIT


def change(playing: Playing, before: str, after: str) -> None:
    playing.write("till.py", lambda text: text.replace(before, after))


def await_reload(tab: Tab) -> None:
    expect(tab.page.locator("#log li", has_text="reloaded").filter(has_not_text="not reloaded")).to_have_count(1)


def test_open_call_goes_on_with_the_same_token(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    begin(tab, "charge")
    open_card(tab).wait_for()
    behind(tab, "Token")
    token = tab.page.locator("#tokens pre").first.text_content()
    behind(tab, "Log")
    change(playing, "Charged", "Billed")
    change(playing, "def refund", "def pay_back")
    await_reload(tab)
    expect(tab.page.locator("#tool-list")).to_contain_text("pay_back")
    answer(tab, "7")
    assert "Billed 7" in tab.text("#result")
    assert token is not None
    sent = tab.page.locator("#messages summary", has_text="tools/call").last
    behind(tab, "Messages")
    sent.click()
    expect(tab.page.locator("#messages")).to_contain_text(token)
    behind(tab, "Trace")
    expect(tab.page.locator("#place")).to_have_text("End: completed (2 of 2)")
    assert "before, now" in tab.text("#inspected")
    tab.page.goto("about:blank")
    assert playing.end() == 0


def test_code_before_a_mistake_serves_on(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    change(playing, "return f", "return f f")
    broken = tab.page.get_by_role("alert").filter(has_text="not reloaded; the old code keeps serving")
    expect(broken).to_contain_text("SyntaxError")
    begin(tab, "charge")
    answer(tab, "1")
    assert "Charged 1" in tab.text("#result")
    change(playing, "return f f", "return f")
    expect(broken).to_be_hidden()
    assert "texts of exceptions" not in "".join(playing.log)


def test_call_of_an_older_revision_ends_with_its_process(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    tab.page.get_by_label("Revision").select_option("2025-11-25")
    begin(tab, "charge")
    open_card(tab).wait_for()
    behind(tab, "Log")
    change(playing, "Charged", "Billed")
    ended(tab, "failed")
    await_reload(tab)
    begin(tab, "charge")
    answer(tab, "2")
    assert "Billed 2" in tab.text("#result")


def test_typed_text_stays_in_its_field_when_the_tool_gets_another(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    choose(tab, "count")
    tab.page.get_by_label("coins").fill("12")
    behind(tab, "Log")
    change(playing, "count(coins: int)", "count(notes: int, coins: int)")
    await_reload(tab)
    tab.page.get_by_label("notes").fill("3")
    expect(tab.page.get_by_label("coins")).to_have_value("12")
    call(tab)
    ended(tab, "completed")
    assert "12 coins" in tab.text("#result")


def test_calls_of_one_moment_keep_their_own_traces(tab: Tab, start: Start) -> None:
    start("till.py")
    posted = {"tool": "count", "era": "2026-07-28", "client": "none"}
    # From the page itself, so that one does not wait for the other.
    tab.page.evaluate(
        "bodies => Promise.all(bodies.map(body => fetch('begin', "
        "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)})))",
        [{**posted, "json": f'{{"coins": {coins}}}'} for coins in range(5)],
    )
    buttons = tab.page.locator("#call-list button")
    expect(buttons.filter(has_text="completed")).to_have_count(5)
    behind(tab, "Trace")
    for place in range(5):
        buttons.nth(place).click()
        expect(tab.page.locator("#conversation")).to_have_attribute("data-call", f"c{5 - place}")
        result = next(line for line in tab.text("#result").splitlines() if line.endswith("coins"))
        expect(tab.page.locator("#inspected")).to_contain_text(f'"{result}"')


def charge(tab: Tab, *, tool: str = "charge") -> None:
    begin(tab, tool)
    answer(tab, "5")


def make_test(tab: Tab) -> str:
    press(tab, "Make a test from this call")
    made = tab.page.locator("#test .remark")
    # Its test runs in a process of its own.
    made.wait_for()
    return made.inner_text()


def run(playing: Playing) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=playing.folder, capture_output=True, text=True, timeout=WAIT).stdout


def test_calls_become_tests_that_pass(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    charge(tab)
    assert make_test(tab) == "The test passes. Written to test_charge.py."
    tab.page.get_by_label("Revision").select_option("2025-11-25")
    charge(tab)
    assert make_test(tab) == "The test passes. Written to test_charge_2.py."
    tab.page.get_by_label("Revision").select_option("2026-07-28")
    charge(tab, tool="charge_slowly")
    assert make_test(tab) == "The test passes. Written to test_charge_slowly.py."
    begin(tab, "close")
    press(tab, "Decline")
    ended(tab, "declined")
    assert make_test(tab) == "The test passes. Written to test_close.py."
    charge(tab, tool="number")
    assert "The result differs from run to run" in make_test(tab)
    made = {file.name: file.read_text() for file in playing.folder.glob("test_*.py")}
    assert "Era.RETRY" in made["test_charge.py"] or "retry" in made["test_charge.py"]
    assert "live" in made["test_charge_2.py"].lower()
    assert "task" in made["test_charge_slowly.py"].lower()
    assert "5 passed" in run(playing)
    # They are tests of the code: a change of it fails them.
    playing.write("till.py", lambda text: text.replace("Charged", "Billed"))
    assert "3 failed, 2 passed" in run(playing)


def test_failing_test_is_shown_and_not_kept(tab: Tab, start: Start) -> None:
    playing = start("till.py")
    begin(tab, "charge")
    open_card(tab).wait_for()
    assert not tab.page.get_by_role("button", name="Make a test from this call").is_visible()
    answer(tab, "5")
    playing.write("till.py", lambda text: text.replace("How much?", "How many?"))
    expect(tab.page.locator("#log")).to_contain_text("reloaded")
    assert make_test(tab) == "The test fails, so it was deleted."
    assert "How many?" in tab.text("#test")
    assert list(playing.folder.glob("test_*.py")) == []


def test_server_of_a_package_is_imported_by_its_path(tab: Tab, start: Start) -> None:
    playing = start("shop.app:make_server", "till.py")
    charge(tab)
    assert "The test passes. Written to test_charge.py." in make_test(tab)
    assert "from shop.app import" in (playing.folder / "test_charge.py").read_text()
