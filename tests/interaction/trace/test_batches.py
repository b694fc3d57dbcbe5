"""A recorder writes after the response, several lines at once, and loses none when a process ends by itself."""

import asyncio
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp_types import TextContent

from roundtrip import Recorder, Server
from roundtrip.trace.writing import files
from tests.interaction.trace.transcribed import events, raw_lines
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


@contextmanager
def counted_writes(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """Count the lines of each `write` to a transcript."""
    counts: list[int] = []
    write = os.write

    def counting(fd: int, data: bytes) -> int:
        counts.append(data.count(b"\n"))
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", counting)
        yield counts


def shop(path: Path) -> Server[Any]:
    server = Server[Any]("shop", trace=Recorder(path, reveal="all"))

    @server.tool()
    async def greet(name: str) -> str:
        return f"Hello, {name}"

    return server


async def test_concurrent_calls_share_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_writes(monkeypatch) as counts:
        async with Client(shop(path)) as client, anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(client.call_tool, "greet", {"name": str(number)})
    assert sum(counts) == 100
    assert len(counts) < 50, counts


async def test_idle_recorder_writes_in_the_next_turn(path: Path) -> None:
    reached, go_on = anyio.Event(), anyio.Event()
    server = Server[Any]("shop", trace=path)

    @server.tool()
    async def wait() -> str:
        reached.set()
        await go_on.wait()
        return "done"

    with anyio.fail_after(WAIT):
        async with Client(server) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait")
            await reached.wait()
            while events(path) != ["began"]:
                await anyio.lowlevel.checkpoint()
            go_on.set()
    assert events(path) == ["began", "ended"]


async def test_flush_writes_at_once_from_any_thread(path: Path) -> None:
    recorder = Recorder(path)
    server = Server[Any]("shop", trace=recorder)

    @server.tool()
    async def now() -> str:
        recorder.flush()
        await asyncio.to_thread(recorder.flush)
        return ",".join(events(path))

    async with Client(server) as client:
        result = await client.call_tool("now", {})
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text == "began"


async def test_arguments_and_result_are_recorded_before_later_changes(path: Path) -> None:
    server = Server[Any]("shop", trace=Recorder(path, reveal="all"))

    @server.tool()
    async def spoil(order: Any) -> str:
        order["book"] = "none"
        return "returned"

    async def shout(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            result["content"][0]["text"] = "changed"
        return result

    server.middleware.append(shout)
    async with Client(server) as client:
        seen = await client.call_tool("spoil", {"order": {"book": "Ulysses"}})
    assert seen.content[0] == TextContent(type="text", text="changed")
    began, ended = raw_lines(path)
    assert "Ulysses" in json.dumps(began["arguments"])
    assert "returned" in json.dumps(ended["result"])
    assert "changed" not in json.dumps(ended["result"])
