"""Adding a tool on an event loop reads no files there."""

import functools
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from roundtrip import Server
from roundtrip.testing import Era
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio
_SOURCE: Final = "def greet() -> str:\n    return 'hello'\n"
_opened: list[tuple[str, int]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _opened.append((arguments[0], threading.get_ident()))


@functools.cache
def _listen() -> None:
    # There is no way to take it back.
    sys.addaudithook(_hear)


@pytest.fixture(autouse=True)
def opened() -> None:
    _listen()


def _greeter(path: Path) -> Callable[[], str]:
    path.write_text(_SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.greet


def _server(greet: Callable[[], str]) -> Server[Any]:
    server = Server[Any]("shop", keys=["7f" * 32])
    server.add_tool(greet)
    return server


async def test_adding_a_tool_on_an_event_loop_reads_no_files(tmp_path: Path) -> None:
    path = tmp_path / "greeting.py"
    greet = _greeter(path)
    _opened.clear()
    server = _server(greet)
    async with connect(server, Era.RETRY) as client:
        assert text_of(await client.call_tool("greet", {})) == "hello"
    readers = [thread for name, thread in _opened if name == str(path)]
    assert len(readers) == 1
    assert threading.get_ident() not in readers


async def test_build_is_the_same_wherever_a_tool_is_added(tmp_path: Path) -> None:
    here = _server(_greeter(tmp_path / "one.py")).identity()
    there = await anyio.to_thread.run_sync(lambda: _server(_greeter(tmp_path / "two.py")).identity())
    assert here.build == there.build
