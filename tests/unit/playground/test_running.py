"""The page of a playground: its log, its address, its scripts, the lists of tools, and where tests are written."""

import logging
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.client.targets import Target
from roundtrip.playground.inbox import PlayedInbox
from roundtrip.playground.playground import Playground
from roundtrip.playground.running import NoticeHandler
from roundtrip.playground.serving import PLAYGROUND_PAGE
from roundtrip.playground.writing import ServerPlace
from roundtrip.trace.page.document import STEP_SCRIPTS, UI_PAGES
from roundtrip.trace.page.loopback import Loopback
from tests.kit.approving import shop
from tests.kit.hosts import hosted
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def test_address_needs_its_last_slash() -> None:
    """The page's requests are relative to it."""
    loopback = Loopback(8000)
    assert loopback.place_of(f"/{loopback.secret}/") == ""
    assert loopback.place_of(f"/{loopback.secret}") is None
    assert loopback.place_of("/another/") is None
    assert Loopback(8000).secret != loopback.secret


def test_line_that_cannot_be_formatted_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    lines = list[str]()
    handler = NoticeHandler(lambda level, text: lines.append(f"{level} {text}"))
    for arguments in (("one",), (1, 2, 3)):
        handler.emit(logging.LogRecord("roundtrip", logging.INFO, "", 0, "%s", arguments, None))
    assert lines == ["info one"]


async def test_many_changes_of_the_tools_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, gate = list[int](), anyio.Event()

    async def list_tools(self: Any) -> None:
        listed.append(1)
        await gate.wait()

    monkeypatch.setattr(Playground, "list_tools", list_tools)
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            playground = Playground(Target(url="http://127.0.0.1:1/mcp"), "x")
            tasks.start_soon(playground.watch_tools)
            await anyio.wait_all_tasks_blocked()
            for _ in range(12):
                playground.show_reload()
            gate.set()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert len(listed) == 2


async def test_inbox_says_which_login_it_needs() -> None:
    async with hosted(shop().streamable_http_app()) as base:
        for login, told in ((None, "start with --approver"), ({"x": "y"}, "rejected the login")):
            inbox = PlayedInbox(base, login)
            assert await inbox.refresh()
            assert told in inbox.data["note"]


NAMES = re.compile(r"^(?:async )?(?:function|let|const) (\w+)", re.MULTILINE)


PAGES = [page.scripts for page in (PLAYGROUND_PAGE, *UI_PAGES.values())]


def test_names_are_used_once_in_a_page() -> None:
    """The scripts of a page share one scope."""
    folder = files("roundtrip.trace.page").joinpath("web")
    for scripts in [*PAGES, (*STEP_SCRIPTS, "call.js")]:
        names = Counter(
            name for script in scripts for name in NAMES.findall(folder.joinpath(script).read_text("utf-8"))
        )
        assert len(names) > 5
        assert (scripts[-1], [name for name, times in names.items() if times > 1]) == (scripts[-1], [])


def place(file: Path, module: str = "", *, is_file: bool = True) -> tuple[str, str]:
    found = ServerPlace.of(module, str(file), "server", is_file=is_file, is_ours=True)
    return found.module, found.folder


def test_server_is_imported_by_the_name_of_its_module(tmp_path: Path) -> None:
    package = tmp_path / "shop" / "tools"
    package.mkdir(parents=True)
    assert place(package / "app.py") == ("app", str(package))
    (package / "__init__.py").write_text("")
    assert place(package / "app.py") == ("tools.app", str(tmp_path / "shop"))
    (tmp_path / "shop" / "__init__.py").write_text("")
    assert place(package / "app.py") == ("shop.tools.app", str(tmp_path))
    assert place(tmp_path / "shop" / "app.py", "shop.app", is_file=False) == ("shop.app", str(tmp_path))
    assert place(tmp_path / "shop" / "__init__.py", "shop", is_file=False) == ("shop", str(tmp_path))
    assert place(tmp_path / "app.py", "app", is_file=False) == ("app", str(tmp_path))
    written = ServerPlace("shop.app", "server", str(tmp_path), is_ours=False)
    written.write(tmp_path / "place.json")
    assert ServerPlace.read(tmp_path / "place.json") == written
