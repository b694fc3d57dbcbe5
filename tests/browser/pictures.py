"""Draw the pictures of the documentation: `python -m tests.browser.pictures`."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Browser, Page
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from roundtrip.trace.page.document import html
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.browser.apps.shown import AppHost, AppShop, hosts
from tests.browser.chromium import chromium
from tests.browser.orders import record_order
from tests.browser.pages.connected import connected_shop
from tests.browser.pages.shop import DELIVERY, page_shop
from tests.browser.playground.conftest import playing
from tests.browser.ui.asking_tasks import begin, run
from tests.docs.pages import ROOT, python_blocks
from tests.interaction.tasks import workshops
from tests.kit.operated import run_ui
from tests.kit.page_calls import confirmation

__all__ = ["main"]

IMAGES: Final = ROOT / "docs" / "images"

_PAUSE: Final = 1.5
"""The pictures show how long people take to answer."""
_COLUMNS: Final = 110
_ROUND: Final = 3
"""The one whose question was reworded."""


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        transcript = folder / "calls.jsonl"
        record_order(transcript, pause=_PAUSE)
        (call,) = join(read_files(files_of([transcript])).lines).calls.values()
        _photograph(call, folder / "call.html", IMAGES / "trace-page.png")
        _draw_terminal(call, transcript, IMAGES / "trace-show.svg")
    _photograph_questions()
    _photograph_app()
    _photograph_inbox()
    _photograph_playground()
    _photograph_readme()
    _photograph_operating()


def _photograph(call: TracedCall, page: Path, to: Path) -> None:
    page.write_text(html(call), encoding="utf-8")
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        tab.goto(f"{page.as_uri()}#step-{_ROUND}")
        tab.screenshot(path=to)


def _photograph_questions() -> None:
    """Draw a question page in light and, with mistakes on a phone, in dark; and a confirmation."""
    with page_shop() as shop, chromium() as browser:
        shop.ask(DELIVERY, {"charge": confirmation("Charge 24.50 euros?\nTo the card that ends in 4242.")})
        tab = browser.new_page(viewport={"width": 640, "height": 300}, color_scheme="light")
        tab.goto(shop.url())
        tab.screenshot(path=IMAGES / "question-page.png", full_page=True)
        phone = browser.new_page(viewport={"width": 360, "height": 640}, color_scheme="dark")
        phone.goto(shop.url())
        phone.get_by_label("Name on the parcel").fill("A")
        phone.get_by_role("button", name="Answer", exact=True).click()
        phone.screenshot(path=IMAGES / "question-page-mistakes.png", full_page=True)
        tab.get_by_role("button", name="Do not answer").click()
        tab.get_by_role("button", name="Yes").wait_for()
        tab.screenshot(path=IMAGES / "question-page-confirmation.png", full_page=True)


def _photograph_app() -> None:
    """Draw a question in the conversation."""
    shop = AppShop()
    shop.ask({"delete": confirmation('Delete "a.txt"?\n\npath: "a.txt"')})
    with hosts() as base, chromium() as browser:
        tab = browser.new_page(viewport={"width": 640, "height": 300}, color_scheme="light")
        view = AppHost(tab, base, shop).mount(result=shop.result())
        view.get_by_role("button", name="Yes").wait_for()
        tab.screenshot(path=IMAGES / "app.png", full_page=True)


def _photograph_inbox() -> None:
    """Draw an approval in the inbox."""
    with connected_shop() as desk, chromium() as browser:
        desk.ask("refund", amount=5, note="a torn cover")
        tab = browser.new_page(viewport={"width": 640, "height": 300}, color_scheme="light")
        tab.context.add_cookies([{"name": "user", "value": "fay", "url": desk.base}])
        tab.goto(f"{desk.base}/approvals")
        tab.get_by_role("link").first.click()
        tab.get_by_label("Reason").fill("The photo shows it")
        tab.screenshot(path=IMAGES / "inbox-approval.png", full_page=True)


def _photograph_playground() -> None:
    """Draw the playground of a new project, with a question."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        new = [sys.executable, "-m", "roundtrip", "new", "cinema", "--here"]
        subprocess.run(new, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with playing("cinema.py", folder=folder) as played, chromium() as browser:
            tab = _second_question(browser, played.url, height=720)
            tab.locator("article.open").get_by_label("back").check()
            tab.screenshot(path=IMAGES / "playground.png")
            tab.goto("about:blank")
            played.end()


def _second_question(browser: Browser, url: str, height: int) -> Page:
    """Book seats in the playground, and return its page with the second question."""
    tab = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme="light")
    tab.goto(url)
    tab.get_by_role("textbox", name="Film").fill("Solaris")
    tab.get_by_role("button", name="Call", exact=True).click()
    tab.locator("article.open").get_by_role("textbox").fill("2")
    tab.get_by_role("button", name="Answer").click()
    tab.locator("#states li:nth-child(8)").wait_for()
    return tab


def _photograph_readme() -> None:
    """Draw the README's program in the playground, with its second question."""
    ((program, _),) = python_blocks(ROOT / "README.md")
    with TemporaryDirectory() as name:
        (Path(name) / "cinema.py").write_text(program.text, encoding="utf-8")
        with playing("cinema.py", folder=Path(name)) as played, chromium() as browser:
            tab = _second_question(browser, played.url, height=640)
            tab.screenshot(path=IMAGES / "readme.png")
            tab.goto("about:blank")
            played.end()


def _photograph_operating() -> None:
    """Draw the pages of operators: the calls of a fleet, and a call that waits."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {workshops.FOLDER: name, "ROUNDTRIP_TRACE_REVEAL": "all", "ROUNDTRIP_TRACE": f"{name}/traces/"}
        asks, _ = run(begin)
        for rounds in (1, 2, 3):
            record_order(folder / "traces" / f"{rounds}.jsonl", rounds=rounds)
        record_order(folder / "traces" / "all.jsonl", pause=_PAUSE)
        options = ["--server", "tests.interaction.tasks.workshops:shop", "--test-user", str(folder / "traces")]
        with run_ui(*options) as served, chromium() as browser:
            tab = browser.new_page(viewport={"width": 1280, "height": 520}, color_scheme="light")
            tab.goto(f"{served.url}?state=awaiting_input")
            tab.locator("#rows tr").nth(4).wait_for()
            tab.screenshot(path=IMAGES / "ui-calls.png")
            tab.goto(f"{served.url}call?id={asks.partition('.')[0]}")
            tab.locator("#stored-questions input").fill("3")
            tab.screenshot(path=IMAGES / "ui-call.png")
            served.end()


def _draw_terminal(call: TracedCall, transcript: Path, to: Path) -> None:
    shown = _in_a_terminal("trace", "show", call.id, str(transcript))
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(shown))
    # Without the fonts that it would load from elsewhere.
    format = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    title = f"roundtrip trace show {call.id[:4]} calls.jsonl"
    drawn = console.export_svg(title=title, theme=SVG_EXPORT_THEME, code_format=format, unique_id="trace-show")
    to.write_text(drawn, encoding="utf-8")


def _in_a_terminal(*arguments: str) -> str:
    """Return the output of the command on a terminal, with its colors."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS), "LINES": "60"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "roundtrip", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 65536):
                printed += part
        except OSError:
            # How Linux says that the other end of a terminal is closed.
            pass
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
