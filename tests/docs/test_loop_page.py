"""The page of the first project runs from top to bottom in a fresh environment, with at most eight commands."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import sync_playwright

if sys.platform == "win32":
    pytest.skip("a terminal is needed", allow_module_level=True)

from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.docs.pages import ROOT, blocks
from tests.docs.test_shell_blocks import READY_PATH, SECONDS, Shell
from tests.kit.environments import Environment
from tests.kit.hosts import free_port

PAGE: Final = ROOT / "docs" / "loop.md"
MOST_COMMANDS: Final = 8
ANSWERS: Final = "2\nback\n"
RESULT: Final = "Booked 2 seats for Solaris in the back row."


def commands() -> list[str]:
    return [line for block in blocks(PAGE) if block.language == "bash" for line in block.text.splitlines()]


def until_green() -> list[str]:
    found = commands()
    return found[: found.index("pytest") + 1]


def test_at_most_eight_commands_lead_to_a_green_test() -> None:
    lines = until_green()
    assert len(lines) <= MOST_COMMANDS
    assert not any("&&" in line or ";" in line for line in lines)
    assert [line.split()[0] for line in lines] == ["python3", "source", "pip", "roundtrip", "roundtrip", "pytest"]


def answer_in_the_playground(shell: Shell, line: str) -> None:
    """Answer the first question in a browser, as the page says, and make a test of the call."""
    if (chromium := find_chromium()) is None:
        pytest.skip("no Chromium on this machine")
    words = ["bash", "-c", f"exec {line}"]
    with subprocess.Popen(words, cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            address = running.stdout.readline().strip()
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
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
def shell(tmp_path: Path) -> Shell:
    """Return a shell in an empty folder, whose environment is made and activated as the first three commands do."""
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = Environment(folder / ".venv").python.parent
    for name, module in (("roundtrip", "roundtrip"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n')
        (programs / name).chmod(0o700)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ}
    variables = {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    return Shell(folder, variables, programs)


@pytest.mark.nightly
def test_page_runs_from_top_to_bottom(shell: Shell) -> None:
    port = free_port()
    began: list[subprocess.Popen[bytes]] = []
    try:
        for line in _on_port(port):
            if line.startswith("roundtrip call"):
                assert RESULT in shell.run_at_a_terminal(line, ANSWERS)
            elif line.startswith("roundtrip dev"):
                answer_in_the_playground(shell, line)
            elif "roundtrip serve" in line:
                words = ["bash", "-c", f"exec env {line}"]
                began.append(subprocess.Popen(words, cwd=shell.folder, env=shell.environment, stdin=subprocess.DEVNULL))
                ready = f"http://127.0.0.1:{port}{READY_PATH}"
                shell.run(f"curl -sf -o /dev/null --retry 60 --retry-delay 1 --retry-all-errors {ready}")
            else:
                said = shell.run(line)
                assert line != "pytest" or "1 snapshot passed" in said
                assert "host-config" not in line or str(shell.folder / "keys") in said
    finally:
        for process in began:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
    assert began


def _on_port(port: int) -> Iterator[str]:
    for line in commands()[3:]:
        yield line.replace(":8000/", f":{port}/").replace("roundtrip serve", f"roundtrip serve --port {port}")


def test_files_of_the_page_are_those_of_a_project(shell: Shell) -> None:
    shell.run(until_green()[3])
    text = PAGE.read_text(encoding="utf-8")
    for path in shell.folder.rglob("*"):
        name = str(path.relative_to(shell.folder))
        if path.is_file() and not name.startswith((".venv/", "__snapshots__/")):
            assert f"`{name}`" in text


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_commands_run_as_they_are_written(tmp_path: Path) -> None:
    """Install this checkout in place of the published package, with pip and its dependencies."""
    (tmp_path / "roundtrip").symlink_to(ROOT)
    folder = tmp_path / "empty"
    folder.mkdir()
    lines = [line.replace('"mcp-roundtrip[testing]"', '"../roundtrip[testing]"') for line in until_green()]
    assert lines != until_green()
    lines = [f"timeout --preserve-status -s INT 30 {line}" if " dev " in line else line for line in lines]
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROUNDTRIP_", "PYTEST_", "PYTHON"))
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env={**kept, "CI": "true"},
        capture_output=True,
        text=True,
        timeout=580,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "http://127.0.0.1:" in ran.stdout
    assert "1 snapshot passed" in ran.stdout
