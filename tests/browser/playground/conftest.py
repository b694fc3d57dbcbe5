"""Run `roundtrip dev` in a real process, and open its page in Chromium."""

import os
import re
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any, Final

import pytest
from playwright.sync_api import Locator

from roundtrip.cli import main
from tests.browser.conftest import Tab, expect
from tests.kit.forks import PipedProcess, run_piped
from tests.kit.hosts import ROOT
from tests.kit.operated import UiProcess
from tests.kit.waiting import WAIT

__all__ = ["Playing", "Start", "playing"]

MAKE_SERVER: Final = """

def make_server() -> Server:
    return server
"""
SHOPS: Final = Path(__file__).with_name("shops")


class Playing(UiProcess):
    """The command, its address, and its folder."""

    def __init__(self, running: PipedProcess, folder: Path) -> None:
        super().__init__(running)
        self.folder = folder
        self.log: list[str] = []
        # A full pipe would stop the command.
        Thread(target=self._read_log, args=(running.stderr,), daemon=True).start()
        assert self.url.startswith("http://127.0.0.1:"), self.log

    def _read_log(self, lines: IO[str]) -> None:
        # The pipe is closed at the end of the test.
        with suppress(ValueError):
            self.log.extend(lines)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """End the command, as Ctrl-C does, and return its exit code."""
        self._process.send_signal(number)
        return self._process.wait(WAIT)

    def write(self, name: str, change: Callable[[str], str]) -> None:
        """Change a file of the project."""
        file = self.folder / name
        file.write_text(change(file.read_text()))

    def open(self, tab: Tab) -> None:
        """Open the page, and wait until it lists the tools."""
        tab.page.goto(self.url)
        tab.page.wait_for_selector("html[data-ready]")
        tab.page.wait_for_selector("#tool-list button")


Start = Callable[..., Playing]


@contextmanager
def playing(*arguments: str, folder: Path) -> Generator[Playing]:
    """Run the command in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        with run_piped(main, "dev", *arguments, cwd=folder) as running:
            opened = Playing(running, folder)
            yield opened
            assert "Exception in ASGI application" not in "".join(opened.log), opened.log


def project(folder: Path, *names: str) -> Path:
    """Copy files of the shops into a folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text((SHOPS / name).read_text())
    return folder


@pytest.fixture(scope="module")
def shared_cinema(tmp_path_factory: pytest.TempPathFactory) -> Generator[Playing]:
    folder = project(tmp_path_factory.mktemp("cinema"), "cinema.py")
    with playing("cinema.py", folder=folder) as running:
        yield running
        assert running.end() == 0


@pytest.fixture
def cinema(shared_cinema: Playing, tab: Tab) -> Generator[Playing]:
    """Open the page of a server with a tool for each kind of question, and of result."""
    shared_cinema.open(tab)
    yield shared_cinema
    log = "".join(shared_cinema.log)
    assert "Traceback" not in log, log


@pytest.fixture
def start(tmp_path: Path, tab: Tab) -> Generator[Start]:
    """Return a function that starts a playground of its own for some files, and opens its page."""
    running: list[Any] = []

    def started(name: str, *more: str) -> Playing:
        folder = project(tmp_path / "project", *([] if ":" in name else [name]), *more)
        if ":" in name:
            package = folder / "shop"
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "app.py").write_text((folder / more[0]).read_text() + MAKE_SERVER)
        context = playing(name, folder=folder)
        running.append(context)
        opened = context.__enter__()
        opened.open(tab)
        return opened

    yield started
    # The page would complain that its server is gone.
    tab.page.goto("about:blank")
    for context in reversed(running):
        context.__exit__(None, None, None)


def choose(tab: Tab, tool: str) -> None:
    """Choose a tool."""
    tab.page.locator("#tool-list").get_by_role("button", name=tool, exact=True).click()


def begin(tab: Tab, tool: str) -> None:
    """Call a tool with the arguments that its form has."""
    choose(tab, tool)
    call(tab)


def call(tab: Tab) -> None:
    """Call the chosen tool, and wait until the page shows the new call."""
    shown = tab.page.locator("#conversation")
    before = shown.get_attribute("data-call") or ""
    press(tab, "Call")
    expect(shown).not_to_have_attribute("data-call", before)
    expect(shown).to_have_attribute("data-call", re.compile("c"))


def open_card(tab: Tab) -> Locator:
    """Return the question that waits."""
    return tab.page.locator("#questions article.open")


def answer(tab: Tab, text: str) -> None:
    """Answer the question of a call, which completes it."""
    open_card(tab).get_by_role("textbox").fill(text)
    press(tab, "Answer")
    ended(tab, "completed")


def ended(tab: Tab, state: str) -> None:
    """Wait for the end of the call."""
    expect(tab.page.locator("#call-state")).to_have_text(re.compile(state))


def behind(tab: Tab, name: str) -> None:
    """Show a tab of what is behind the call."""
    tab.page.get_by_role("tab", name=name, exact=True).click()


def press(tab: Tab, button: str) -> None:
    """Press a button by its name."""
    tab.page.get_by_role("button", name=button, exact=True).click()
