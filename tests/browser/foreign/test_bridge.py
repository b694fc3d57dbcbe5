"""A host on the bridge of ext-apps, whose client is the TypeScript SDK's, and which shows apps and no forms."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import FrameLocator, Page

from tests.browser.apps.shown import hosts
from tests.browser.conftest import Tab, expect
from tests.browser.foreign.approving import approve
from tests.clients.app_servers import USER, app_server
from tests.clients.drivers import node_with
from tests.clients.tables import ClientTable, HostWithApps

NEW: Final = "2026-07-28"
OLD: Final = "2025-11-25"
TOLD: Final = "The user has answered in the app. Call continue_call with the handle to get the result."
OWN: Final = {"answer_call", "look_at_call"}


class Chat:
    """Chat with a model, which calls tools, and a user, who answers in their apps."""

    def __init__(self, page: Page, base: str, url: str, revision: str) -> None:
        self.page = page
        self.url = url
        page.goto(f"{base}/chat.html")
        page.wait_for_selector("html[data-ready]")
        mode = "auto" if revision == NEW else "legacy"
        found, tools = self._do("connect", f"{url}/mcp", {"x-user": USER}, mode)
        assert found == revision
        self.tools: set[str] = set(tools)

    def _do(self, function: str, *values: Any) -> Any:
        return self.page.evaluate("([name, values]) => window[name](...values)", [function, values])

    def call(self, frame: str, tool: str, **arguments: str) -> str:
        return self._do("call", tool, arguments, frame)

    def view(self, frame: str) -> FrameLocator:
        return self.page.frame_locator(f"iframe[name={frame}]")

    def answer(self, frame: str, heading: str, number: str | None = None) -> None:
        """Answer a question: with a number, or with Yes."""
        self.see(frame, heading)
        if number is not None:
            self.view(frame).get_by_role("textbox").fill(number)
        self.view(frame).get_by_role("button", name="Yes" if number is None else "Answer", exact=True).click()

    def see(self, frame: str, heading: str) -> None:
        expect(self.view(frame).get_by_role("heading", name=heading, level=1)).to_be_visible()

    def close(self) -> None:
        """End the connection, before its server ends."""
        self._do("close")

    def reload(self, frame: str, *, politely: bool) -> None:
        self._do("reload", frame, politely)

    def end(self, frame: str, asked: str) -> str:
        """Wait until a call ends in its app, and return the result that the model gets."""
        self.see(frame, "Done")
        return self._do("call", "continue_call", {"handle": asked.partition("handle='")[2].partition("'")[0]}, "")

    @property
    def told(self) -> list[list[str]]:
        return self.page.evaluate("contexts")


@pytest.fixture(scope="module")
def base() -> Generator[str]:
    node_with("@modelcontextprotocol/ext-apps")
    with hosts() as url:
        yield url


@pytest.mark.parametrize(
    ("kind", "revision", "app"),
    [
        ("server", NEW, True),
        ("server", OLD, True),
        ("server", NEW, "always"),
        ("server", OLD, "always"),
        ("fastmcp", NEW, True),
        ("mcpserver", OLD, True),
    ],
)
def test_five_tools_end_in_an_app(
    tab: Tab, base: str, table: ClientTable, tmp_path: Path, kind: str, revision: str, app: Literal[True, "always"]
) -> None:
    # Without sessions there are two workers, which share a store.
    store = tmp_path / "calls.db" if app == "always" else None
    with app_server(kind, app=app, store=store) as url:
        chat = Chat(tab.page, base, url, revision)
        assert not OWN & chat.tools

        asked = chat.call("book", "book", film="Solaris")
        chat.answer("book", "Which seat for Solaris?", "many")
        expect(chat.view("book").get_by_role("alert", name="There is a problem")).to_be_focused()
        chat.reload("book", politely=False)
        chat.answer("book", "Which seat for Solaris?", "3")
        assert chat.end("book", asked) == "Solaris, seat 3"

        asked = chat.call("delete", "delete", film="Solaris")
        chat.answer("delete", 'Delete "Solaris"?')
        assert chat.end("delete", asked) == "Solaris is deleted"

        asked = chat.call("order", "order")
        chat.answer("order", "How many cups?", "2")
        chat.see("order", "Is this right?")
        chat.reload("order", politely=True)
        chat.answer("order", "Is this right?", "3")
        assert chat.end("order", asked) == "3 cups"

        asked = chat.call("survey", "survey")
        for place in range(3):
            chat.answer("survey", f"Number {place}?", str(place))
            chat.see("survey", f"Number {place + 1}?" if place < 2 else "Done")
            chat.reload("survey", politely=place != 1)
        assert chat.end("survey", asked) == "[0, 1, 2]"

        asked = chat.call("refund", "refund", order="A7")
        chat.see("refund", "Waiting for an approval")
        chat.reload("refund", politely=True)
        chat.see("refund", "Waiting for an approval")
        approve(url)
        assert chat.end("refund", asked) == "refunded A7"
        expect(chat.view("refund").locator("main")).to_contain_text("Approved by finance")

        # The view that gave the last answer tells the model, and no restored one.
        assert chat.told == [[frame, TOLD] for frame in ("book", "delete", "order", "survey")]
        assert chat.call("plain", "plain", film="Solaris") == "Solaris"
        for frame in ("book", "refund"):
            chat.reload(frame, politely=True)
            chat.see(frame, "Done")
        assert len(chat.told) == 4
        chat.close()
    table.check(HostWithApps("Host on ext-apps 2.0 and TypeScript SDK 2.4", revision), *["app"] * 5)
