"""The web client of the MCP Inspector, which lets apps render forms (SEP-3118), and shows apps beside tools."""

import os
import re
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from secrets import token_hex
from typing import Final, Literal

from playwright.sync_api import Browser, FrameLocator, Locator, Page, expect

from tests.clients.app_servers import USER
from tests.clients.drivers import node_with
from tests.conformance.suite import NODE_MODULES
from tests.kit.forks import is_readable
from tests.kit.hosts import WAIT, free_port

__all__ = ["Inspector", "InspectorEra", "inspector"]

InspectorEra = Literal["modern", "legacy"]
_PACKAGE: Final = "@modelcontextprotocol/inspector"
_READY: Final = b"up and running"


class Inspector:
    """Inspector in a browser, connected to a server."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.locator("label", has=page.get_by_role("switch")).click()
        expect(page.get_by_text("Connected", exact=True)).to_be_visible()
        self._go("Tools")

    @property
    def revision(self) -> str:
        self._go("Servers")
        text = self.page.get_by_text(re.compile(r"^MCP \d{4}-\d\d-\d\d$")).inner_text()
        return text.removeprefix("MCP ")

    @property
    def view(self) -> FrameLocator:
        """Our view in the dialog for a form."""
        return _view_in(self.page.get_by_test_id("app-elicitation"))

    @property
    def app(self) -> FrameLocator:
        """Our view beside a tool."""
        return self.page.frame_locator("iframe").frame_locator("iframe")

    def call(self, tool: str, **arguments: str) -> None:
        """Call a tool among the tools."""
        self._go("Tools")
        self._fill(tool, arguments)
        self.page.get_by_role("button", name="Execute Tool").click()

    def open_app(self, tool: str, **arguments: str) -> None:
        """Call a tool among the apps."""
        self._go("Apps")
        self._fill(tool, arguments)
        self.page.get_by_role("button", name="Open App").click()

    def answer(self, heading: str, number: str | None = None) -> None:
        """Answer a question in the view: with a number, or with Yes."""
        expect(self.view.get_by_role("heading", name=heading, level=1)).to_be_visible()
        expect(self.page.get_by_text("Answering through the server-provided MCP App.")).to_be_visible()
        expect(self.view.get_by_text("cinema is asking because of a request in your chat.")).to_be_visible()
        if number is not None:
            self.view.get_by_role("textbox").fill(number)
        self.view.get_by_role("button", name="Yes" if number is None else "Answer", exact=True).click()

    def see(self, text: str) -> None:
        """Wait for the result of a tool."""
        expect(self.page.get_by_text(text, exact=True).first).to_be_visible()

    def _go(self, part: str) -> None:
        self.page.get_by_text(part, exact=True).first.click()

    def _fill(self, tool: str, arguments: dict[str, str]) -> None:
        self.page.get_by_text(tool, exact=True).first.click()
        for name, value in arguments.items():
            self.page.get_by_role("textbox", name=name).fill(value)


def _view_in(dialog: Locator) -> FrameLocator:
    return dialog.frame_locator("iframe").frame_locator("iframe")


@contextmanager
def inspector(browser: Browser, url: str, era: InspectorEra) -> Generator[Inspector]:
    """Run the Inspector, open it, and connect it to a server."""
    node = node_with(_PACKAGE)
    # It runs only if it is called by its real path, and the folder may be a link.
    script = str((NODE_MODULES / _PACKAGE / "clients" / "launcher" / "build" / "index.js").resolve())
    port, token = free_port(), token_hex(16)
    with tempfile.TemporaryDirectory() as home:
        env = {
            **os.environ,
            "HOME": home,
            "MCP_INSPECTOR_SECRET_STORE": "memory",
            "MCP_INSPECTOR_API_TOKEN": token,
            "MCP_AUTO_OPEN_ENABLED": "false",
            "HOST": "127.0.0.1",
            "CLIENT_PORT": str(port),
            # Dynamic ports for what it serves to frames.
            "MCP_SANDBOX_PORT": "0",
            "MCP_APP_ORIGIN_PORT": "0",
        }
        server = ["--server-url", f"{url}/mcp", "--transport", "http", "--header", f"x-user: {USER}"]
        command = [node, script, "--web", *server, "--protocol-era", era]
        with (
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process,
            browser.new_context(viewport={"width": 1280, "height": 900}) as context,
        ):
            try:
                _wait_for_start(process)
                context.set_default_timeout(WAIT * 1000)
                # No network: not for the Inspector's fonts, nor for the links of our server.
                context.route(lambda address: not address.startswith("http://127.0.0.1:"), lambda route: route.abort())
                page = context.new_page()
                # With its last settings it draws the list of servers again.
                with page.expect_response("**/api/storage/client"):
                    page.goto(f"http://127.0.0.1:{port}/?MCP_INSPECTOR_API_TOKEN={token}")
                yield Inspector(page)
            finally:
                process.kill()


def _wait_for_start(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    said = b""
    while _READY not in said:
        assert is_readable(process.stdout.fileno(), WAIT), said
        read = os.read(process.stdout.fileno(), 4096)
        assert read, said
        said += read
