"""Provide shops with question pages, and steps that tests of pages share."""

from collections.abc import Generator
from typing import Final

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Tab, expect
from tests.browser.pages.connected import ConnectedShop

__all__ = ["HOSTILE", "LONG", "has_tall_button", "log_in", "markup_of", "press", "see"]

HOSTILE: Final = (
    "\"'><img src=x onerror=alert(1)><script>alert(2)</script></textarea></style><svg onload=alert(3)>\u202e{{7*7}}"
)
"""Text that tries to run as a part of the page."""
LONG: Final = "Donaudampfschifffahrtsgesellschaft" * 4


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def see(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()


def markup_of(page: Page) -> int:
    """Return how many elements a page has that a text of others may not make."""
    return page.locator("script, main img, svg, iframe").count()


def has_tall_button(page: Page, name: str) -> bool:
    """Return True if a button can be hit with a thumb."""
    box = page.get_by_role("button", name=name, exact=True).bounding_box()
    return box is not None and box["height"] >= 44


def log_in(page: Page, shop: ConnectedShop, user: str = "ann") -> None:
    page.context.add_cookies([{"name": "user", "value": user, "url": shop.base}])


@pytest.fixture(autouse=True)
def _statuses_are_no_complaints(tab: Tab) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Chromium writes every status from 400 to its console; all that it writes beside fails the test."""
    yield
    tab.complaints[:] = [line for line in tab.complaints if "the server responded with a status of" not in line]
