"""Provide a real Chromium without a window, and axe, which checks pages for barriers.

Any complaint of a page fails the test.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Frame, Page, expect

from tests.browser.chromium import chromium
from tests.kit.hosts import ROOT
from tests.kit.programs import needs
from tests.kit.waiting import WAIT

__all__ = ["DRAWINGS", "Axe", "Tab", "expect", "scroll_width"]

expect.set_options(timeout=WAIT * 1000)

Axe = Callable[..., None]
DRAWINGS: Final = (
    *(".rt-drawing text", "#exchange-pane svg", ".mark"),
    *("#first", "#last", "#grid thead button", ".changes b"),
)
"""Texts in drawings and symbols, whose contrast axe cannot tell."""
_FASTER: Final = "Autofocus processing was blocked because a document already has a focused element."
"""Remark of a browser about a form in which a test types before its first frame is drawn."""
_FOLDER: Final = Path(__file__).parent
_AXE: Final = ROOT / ".ci" / "node_modules" / "axe-core" / "axe.min.js"


class Tab:
    """Page with its requests, errors and messages."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dismiss)
        page.set_default_timeout(WAIT * 1000)

    def _note(self, message: ConsoleMessage) -> None:
        if message.text != _FASTER:
            self.complaints.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


def scroll_width(page: Page) -> int:
    """Return the width of the loaded page; while a page begins to load, it has no root."""
    page.wait_for_load_state()
    return page.evaluate("document.documentElement.scrollWidth")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as tests that need Chromium."""
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(needs("chromium"))


@pytest.fixture(scope="package")
def browser() -> Generator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def tab(browser: Browser) -> Generator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    tab = Tab(context.new_page())
    yield tab
    context.close()
    assert tab.complaints == []
    assert tab.dialogs == []


@pytest.fixture
def axe(tab: Tab) -> Axe:
    """Return a function that fails if a page has barriers, by all rules of axe but the named ones.

    It leaves parts out that `exclude` selects. With `frame` it looks into a frame of another origin.
    """
    source = _axe_source(_AXE)

    def check(*without: str, exclude: Sequence[str] = (), frame: Frame | None = None) -> None:
        # By the protocol of the browser's tools: the policy of the page allows no script.
        session: Any = tab.page.context.new_cdp_session(frame or tab.page)
        rules = ", ".join(f"{rule!r}: {{enabled: false}}" for rule in without)
        looked_at = f"{{include: [document], exclude: {list(exclude)}}}"
        whole = "await new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', go));"
        run = f"const found = await axe.run({looked_at}, {{rules: {{{rules}}}}}); return JSON.stringify({_SUMMARY});"
        program = {
            "expression": f"{source}\n(async () => {{ {whole} {run} }})()",
            "awaitPromise": True,
            "returnByValue": True,
        }
        # A page that is still loading can take the program's promise with it: its answer is an empty object then.
        answers = (session.send("Runtime.evaluate", program)["result"].get("value") for _ in range(_TRIES))
        assert next((answer for answer in answers if isinstance(answer, str)), None) == "[]"

    return check


_TRIES: Final = 5
_SUMMARY: Final = (
    "[...found.violations, ...found.incomplete]"
    ".map((rule) => [rule.id, rule.nodes.map((node) => node.html + ' ' + node.failureSummary)])"
)


def _axe_source(path: Path) -> str:
    if not path.is_file():
        pytest.skip("no axe-core; `npm install --no-save --prefix .ci axe-core` installs it")
    return path.read_text(encoding="utf-8")
