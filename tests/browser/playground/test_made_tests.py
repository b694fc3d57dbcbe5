"""A call becomes a test that passes, beside the server's file."""

import subprocess
import sys

from tests.browser.conftest import Tab, expect
from tests.browser.playground.conftest import Playing, Start, answer, begin, ended, open_card, press
from tests.kit.hosts import WAIT


def charge(tab: Tab, *, tool: str = "charge") -> None:
    begin(tab, tool)
    answer(tab, "5")


def make_test(tab: Tab) -> str:
    press(tab, "Make a test of this")
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
    assert make_test(tab) == "It passes. Written to test_charge.py."
    tab.page.get_by_label("Revision").select_option("2025-11-25")
    charge(tab)
    assert make_test(tab) == "It passes. Written to test_charge_2.py."
    tab.page.get_by_label("Revision").select_option("2026-07-28")
    charge(tab, tool="charge_slowly")
    assert make_test(tab) == "It passes. Written to test_charge_slowly.py."
    begin(tab, "close")
    press(tab, "Decline")
    ended(tab, "declined")
    assert make_test(tab) == "It passes. Written to test_close.py."
    charge(tab, tool="number")
    assert "Its result differs from run to run" in make_test(tab)
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
    assert not tab.page.get_by_role("button", name="Make a test of this").is_visible()
    answer(tab, "5")
    playing.write("till.py", lambda text: text.replace("How much?", "How many?"))
    expect(tab.page.locator("#log")).to_contain_text("reloaded")
    assert make_test(tab) == "It fails, and was not kept."
    assert "How many?" in tab.text("#test")
    assert list(playing.folder.glob("test_*.py")) == []


def test_server_of_a_package_is_imported_by_its_path(tab: Tab, start: Start) -> None:
    playing = start("shop.app:make_server", "till.py")
    charge(tab)
    assert "It passes. Written to test_charge.py." in make_test(tab)
    assert "from shop.app import" in (playing.folder / "test_charge.py").read_text()
