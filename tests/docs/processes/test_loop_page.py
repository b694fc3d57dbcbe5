"""The page of the first project runs from top to bottom in a fresh environment, with at most eight commands."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.docs.processes.loop import PAGE, commands, until_green
from tests.docs.processes.shell import SECONDS, Shell, on_a_free_port
from tests.kit.environments import Environment
from tests.kit.programs import needs

MOST_COMMANDS: Final = 8
ANSWERS: Final = "2\nback\n"
RESULT: Final = "Booked 2 seats for Solaris in the back row."


def test_at_most_eight_commands_lead_to_a_green_test() -> None:
    lines = until_green()
    assert len(lines) <= MOST_COMMANDS
    assert not any("&&" in line or ";" in line for line in lines)
    assert [line.split()[0] for line in lines] == ["python3", "source", "pip", "roundtrip", "roundtrip", "pytest"]


def answer_in_the_playground(shell: Shell, line: str) -> None:
    """Answer the first question in a browser, as the page says, and make a test of the call."""
    words = ["bash", "-c", f"exec {line}"]
    with subprocess.Popen(words, cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            address = running.stdout.readline().strip()
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
                page = browser.new_page()
                page.goto(address)
                page.get_by_role("textbox", name="Film").fill("Solaris")
                page.get_by_role("button", name="Call", exact=True).click()
                page.locator("article.open").get_by_role("textbox").fill("2")
                page.get_by_role("button", name="Answer").click()
                page.locator("article.open").get_by_label("back").check()
                page.get_by_role("button", name="Answer").click()
                page.locator("#result").get_by_text(RESULT, exact=True).first.wait_for()
                page.get_by_role("button", name="Make a test of this").click()
                page.locator("#test").get_by_text("It passes.").wait_for(timeout=SECONDS * 1000)
                browser.close()
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(SECONDS)
    assert running.returncode == 0


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Yield a shell in an empty folder, whose environment is made and activated as the first three commands do."""
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = Environment(folder / ".venv").python.parent
    for name, module in (("roundtrip", "roundtrip"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n')
        (programs / name).chmod(0o700)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ}
    variables = {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    shell = Shell(folder, variables, programs)
    yield shell
    shell.stop_services()


@needs("chromium")
@pytest.mark.timeout(600)
def test_page_runs_from_top_to_bottom(shell: Shell) -> None:
    port, text = on_a_free_port("\n".join(commands()[3:]))
    served = False
    for line in text.splitlines():
        if line.startswith("roundtrip call"):
            assert RESULT in shell.run_at_a_terminal(line, ANSWERS)
        elif line.startswith("roundtrip dev"):
            answer_in_the_playground(shell, line)
        elif "roundtrip serve" in line:
            shell.serve(line, port)
            served = True
        else:
            said = shell.run(line)
            assert line != "pytest" or "1 snapshot passed" in said
            assert "host-config" not in line or str(shell.folder / "keys") in said
    assert served


def test_files_of_the_page_are_those_of_a_project(shell: Shell) -> None:
    shell.run(until_green()[3])
    text = PAGE.read_text(encoding="utf-8")
    for path in shell.folder.rglob("*"):
        name = str(path.relative_to(shell.folder))
        if path.is_file() and not name.startswith((".venv/", "__snapshots__/")):
            assert f"`{name}`" in text
