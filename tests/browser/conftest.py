"""Provide a real Chromium without a window, and axe, which checks pages for barriers.

Any complaint of a page fails the test.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Frame, Page, expect

from tests.browser.chromium import chromium
from tests.kit.hosts import ROOT
from tests.kit.programs import needs
from tests.kit.waiting import WAIT

__all__ = ["DRAWINGS", "Axe", "Tab", "expect", "papers", "scroll_width"]

expect.set_options(timeout=WAIT * 1000)

Axe = Callable[..., None]
Scheme = Literal["light", "dark"]
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


def papers(page: Page) -> tuple[str, str]:
    """Return the color of the page's paper, for users who prefer light colors and for those who prefer dark ones."""
    shown = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    dark: str = page.evaluate(shown)
    page.emulate_media(color_scheme="light")
    return page.evaluate(shown), dark


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

    The rules about colors must hold in dark colors too. The function leaves parts out that `exclude` selects. With
    `frame` it looks into a frame of another origin.
    """
    source = _axe_source(_AXE)

    def check(*without: str, exclude: Sequence[str] = (), frame: Frame | None = None) -> None:
        page = tab.page
        # By the protocol of the browser's tools: the policy of the page allows no script.
        session: Any = page.context.new_cdp_session(frame or page)
        looked_at = f"{{include: [document], exclude: {list(exclude)}}}"

        def evaluate(expression: str) -> object:
            program = {"expression": expression, "awaitPromise": True, "returnByValue": True}
            return session.send("Runtime.evaluate", program)["result"].get("value")

        def found(options: str) -> object:
            # A document gets axe once, because it is half a megabyte.
            if evaluate("typeof axe === 'undefined'"):
                evaluate(f"{source}\n0")
            whole = "await new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', go));"
            run = f"const found = await axe.run({looked_at}, {{{options}}}); return JSON.stringify({_SUMMARY});"
            return evaluate(f"(async () => {{ {whole} {run} }})()")

        others = ", ".join(f"{rule!r}: {{enabled: false}}" for rule in without)
        in_dark = [rule for rule in _RULES_ABOUT_COLORS if rule not in without]
        options: dict[Scheme, str] = {"light": f"rules: {{{others}}}", "dark": f"runOnly: {in_dark}"}
        for scheme, rules in options.items():
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            # A page that is still loading can take the program's promise with it: its answer is an empty object then.
            answers = (found(rules) for _ in range(_TRIES))
            assert next((answer for answer in answers if isinstance(answer, str)), None) == "[]", scheme
        page.emulate_media(color_scheme="light")

    return check


_RULES_ABOUT_COLORS: Final = ("color-contrast", "link-in-text-block")
_TRIES: Final = 5
_SUMMARY: Final = (
    "[...found.violations, ...found.incomplete]"
    ".map((rule) => [rule.id, rule.nodes.map((node) => node.html + ' ' + node.failureSummary)])"
)


def _axe_source(path: Path) -> str:
    if not path.is_file():
        pytest.skip("no axe-core; `npm install --no-save --prefix .ci axe-core` installs it")
    return path.read_text(encoding="utf-8")
