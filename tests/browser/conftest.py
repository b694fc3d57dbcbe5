"""Provide a real Chromium without a window. Any complaint of a page fails the test."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.browser.chromium import ARGUMENTS, find_chromium

__all__ = ["Tab", "expect"]


class Tab:
    """Page with its requests, errors and messages."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dismiss)
        page.set_default_timeout(20_000)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Browser) -> Generator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    tab = Tab(context.new_page())
    yield tab
    context.close()
    assert tab.complaints == []
    assert tab.dialogs == []
