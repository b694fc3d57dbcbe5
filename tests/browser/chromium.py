"""The machine's own Chromium; the browsers that come with playwright are not needed."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from tests.kit.programs import find_chromium

__all__ = ["ARGUMENTS", "chromium", "find_chromium"]

ARGUMENTS: Final = ["--no-sandbox", "--disable-gpu"]
"""Containers seldom allow the sandbox, and the pages are our own."""


@contextmanager
def chromium() -> Generator[Browser]:
    """Run a Chromium without a window."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield browser
        browser.close()
