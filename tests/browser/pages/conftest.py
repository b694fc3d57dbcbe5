"""Provide shops with question pages, and axe, which checks pages for barriers."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.conftest import Tab
from tests.browser.pages.shop import PageShop, page_shop
from tests.hosts import ROOT

__all__ = ["Axe"]

Axe = Callable[..., None]
_AXE: Final = ROOT / ".ci" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def _running_shop() -> Generator[PageShop]:
    with page_shop() as shop:
        yield shop


@pytest.fixture
def shop(_running_shop: PageShop) -> PageShop:
    _running_shop.calls.calls.clear()
    return _running_shop


@pytest.fixture
def axe(tab: Tab) -> Axe:
    """Return a function that fails if a page has barriers, by all rules of axe but the named ones."""
    source = _axe_source(_AXE)

    def check(*without: str) -> None:
        # By the protocol of the browser's tools: the policy of the page allows no script.
        session: Any = tab.page.context.new_cdp_session(tab.page)
        rules = ", ".join(f"{rule!r}: {{enabled: false}}" for rule in without)
        run = f"const found = await axe.run(document, {{rules: {{{rules}}}}}); return JSON.stringify({_SUMMARY});"
        program = {"expression": f"{source}\n(async () => {{ {run} }})()", "awaitPromise": True, "returnByValue": True}
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
