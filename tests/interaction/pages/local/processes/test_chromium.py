"""Real Chromium, which a server on stdio opens through `BROWSER`."""

import re
import shlex
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.interaction.pages.local.processes.machine import Machine
from tests.kit.hosts import WAIT
from tests.kit.page_users import text_of
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("chromium")]

_LIFE_SECONDS = 60
"""The longest life of the browser, which nothing else ends if a test fails."""


def chromium_in(folder: Path) -> str:
    """Return the command of a Chromium without a window, which writes its port for tools into a folder."""
    path = find_chromium()
    assert path is not None
    options = ["--headless=new", "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    return shlex.join(["timeout", str(_LIFE_SECONDS), path, *ARGUMENTS, *options, "%s"])


async def port_in(folder: Path) -> str:
    """Return the port of a Chromium's tools, and wait for its start."""
    file = anyio.Path(folder / "DevToolsActivePort")
    with anyio.fail_after(WAIT):
        # The browser announces the file to nobody.
        while not await file.exists() or not (lines := (await file.read_text()).splitlines()):  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return lines[0]


async def answer(page: Page, heading: str, text: str | None = None) -> None:
    await expect(page.locator("h1")).to_have_text(heading)
    if text is not None:
        await page.locator("input[type=text]").first.fill(text)
    await page.get_by_role("button").first.click()


async def test_chromium_opens_the_page_and_its_user_answers(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    machine = Machine(tmp_path, variables={"BROWSER": chromium_in(profile)})
    results: list[str] = []
    async with machine.client() as client, async_playwright() as driver:

        async def call() -> None:
            results.append(text_of(await client.call_tool("book", {"film": "Solaris"})))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            browser = await driver.chromium.connect_over_cdp(f"http://127.0.0.1:{await port_in(profile)}")
            try:
                (context,) = browser.contexts
                (page,) = context.pages
                complaints: list[Any] = []
                page.on("console", lambda message: complaints.append(message.text))
                await answer(page, 'Book "Solaris"?')
                await answer(page, "Which seat for Solaris?", "12")
                # A mistake is shown, with all that was typed.
                await expect(page.locator("input[type=text]").first).to_have_value("12")
                await answer(page, "Which seat for Solaris?", "3")
                await answer(page, "How many?", "2")
                # A reload and another tab of the same browser show the same question.
                await expect(page.locator("h1")).to_have_text("All right?")
                await page.reload()
                other = await context.new_page()
                await other.goto(page.url)
                await expect(other.locator("h1")).to_have_text("All right?")
                await answer(page, "All right?")
                await expect(page.locator("h1")).to_have_text("Done")
                # The one-use address is not in the history of the tab.
                tools: Any = await page.context.new_cdp_session(page)
                history = await tools.send("Page.getNavigationHistory")
                assert not any("/open/" in entry["url"] for entry in history["entries"])
                assert re.search(r"^http://127\.0\.0\.1:\d+/ask/", page.url)
                # A page without its cookie is closed.
                async with await browser.new_context() as stranger:
                    seen = await stranger.new_page()
                    response = await seen.goto(page.url)
                    assert response is not None
                    assert response.status == 404
                assert [text for text in complaints if "404" not in text and "422" not in text] == []
            finally:
                tools = cast("Any", await browser.new_browser_cdp_session())
                await tools.send("Browser.close")
    assert results == ["Solaris, row 3, 2, reserved 1 times"]
