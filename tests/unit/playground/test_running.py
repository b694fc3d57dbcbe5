"""The page of a playground: its log, its address, and the lists of tools."""

import logging
from typing import Any

import anyio
import pytest

from roundtrip.client.targets import Target
from roundtrip.client.terminal import Terminal
from roundtrip.playground.hosting import NoticeHandler
from roundtrip.playground.playground import Playground, ServedFacts
from roundtrip.trace.page.loopback import Loopback
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def test_address_needs_its_last_slash() -> None:
    """The page's requests are relative to it."""
    loopback = Loopback(8000)
    assert loopback.place_of(f"/{loopback.secret}/") == ""
    assert loopback.place_of(f"/{loopback.secret}") is None
    assert loopback.place_of("/another/") is None


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
            target = Target(url="http://127.0.0.1:1/mcp")
            playground = Playground(target, ServedFacts("x"), Terminal(listen=False), folder=None, keys=(), tasks=tasks)
            for _ in range(12):
                playground.reloaded()
            await anyio.wait_all_tasks_blocked()
            for _ in range(12):
                playground.reloaded()
            gate.set()
    assert len(listed) == 2
