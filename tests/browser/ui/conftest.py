"""Provide the pages of `roundtrip ui` on a port, with data that a test gives."""

from collections.abc import Callable, Generator

import pytest

from tests.browser.conftest import Tab
from tests.browser.ui.served import Served, serving_pages

__all__ = ["Open", "Served"]

Open = Callable[[str], None]


@pytest.fixture
def ui(tab: Tab) -> Generator[Served]:
    with serving_pages() as served:
        yield served
        # A page that is open would complain that its server is gone.
        tab.page.goto("about:blank")


@pytest.fixture
def show(tab: Tab, ui: Served) -> Open:
    """Return a function that opens a page and waits until it is drawn."""

    def opened(address: str) -> None:
        tab.page.goto(f"{ui.url}{address}")
        tab.page.wait_for_selector("html[data-ready]")

    return opened
