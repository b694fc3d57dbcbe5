"""Provide shops with question pages, and steps that tests of pages share."""

from collections.abc import Generator
from typing import Final

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Tab
from tests.browser.pages.shop import PageShop, page_shop

__all__ = ["HOSTILE", "press"]

HOSTILE: Final = (
    "\"'><img src=x onerror=alert(1)><script>alert(2)</script></textarea></style><svg onload=alert(3)>\u202e{{7*7}}"
)
"""Text that tries to run as a part of the page."""


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


@pytest.fixture(autouse=True)
def _statuses_are_no_complaints(tab: Tab) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Chromium writes every status from 400 to its console; all that it writes beside fails the test."""
    yield
    tab.complaints[:] = [line for line in tab.complaints if "the server responded with a status of" not in line]


@pytest.fixture(scope="module")
def _running_shop() -> Generator[PageShop]:  # pyright: ignore[reportUnusedFunction]
    with page_shop() as shop:
        yield shop


@pytest.fixture
def shop(_running_shop: PageShop) -> PageShop:
    _running_shop.calls.calls.clear()
    return _running_shop
