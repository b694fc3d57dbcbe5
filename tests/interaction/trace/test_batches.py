"""A recorder writes after the response, several lines at once, and loses none when a process ends by itself."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp_types import ElicitResult, TextContent

from roundtrip import Context, Recorder, Server
from roundtrip.trace.writing import files
from tests.interaction.trace.transcribed import calls_of
from tests.kit.tiers import at_night

pytestmark = pytest.mark.anyio


def events(path: Path) -> list[str]:
    """Return what is in the file, without having recorders write."""
    return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []


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


async def test_concurrent_calls_share_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    with counted_writes(monkeypatch) as counts:
        async with Client(shop(path)) as client, anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(client.call_tool, "greet", {"name": str(number)})
    assert sum(counts) == 100
    assert len(counts) < 50, counts


async def test_idle_recorder_writes_in_the_next_turn(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    reached, go_on = anyio.Event(), anyio.Event()
    server = Server[Any]("shop", trace=path)

    @server.tool()
    async def wait() -> str:
        reached.set()
        await go_on.wait()
        return "done"

    with anyio.fail_after(10):
        async with Client(server) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait")
            await reached.wait()
            while events(path) != ["began"]:
                await anyio.lowlevel.checkpoint()
            go_on.set()
    assert events(path) == ["began", "ended"]


async def test_all_lines_are_written_when_the_server_stops(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with Client(shop(path)) as client:
        for number in range(20):
            await client.call_tool("greet", {"name": str(number)})
    assert events(path) == ["began", "ended"] * 20


async def test_flush_writes_at_once_from_any_thread(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
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


async def test_arguments_that_a_body_changes_are_recorded_as_sent(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server[Any]("shop", trace=Recorder(path, reveal="all"))

    @server.tool()
    async def spoil(order: Any) -> str:
        order["book"] = "none"
        return "spoilt"

    async with Client(server) as client:
        await client.call_tool("spoil", {"order": {"book": "Ulysses"}})
    (call,) = calls_of(path)
    assert "Ulysses" in repr(call)


async def test_result_that_middleware_changes_is_recorded_as_returned(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = shop(path)

    async def shout(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            result["content"][0]["text"] = "changed"
        return result

    server.middleware.append(shout)
    async with Client(server) as client:
        seen = await client.call_tool("greet", {"name": "Ada"})
    assert seen.content[0] == TextContent(type="text", text="changed")
    ended = json.loads(path.read_text().splitlines()[-1])
    assert "Hello, Ada" in json.dumps(ended["result"])
    assert "changed" not in json.dumps(ended["result"])


async def test_asked_line_is_written_while_a_live_user_thinks(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server[Any]("shop", trace=path)

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    async def think(context: Any, params: Any) -> Any:
        with anyio.fail_after(10):
            while events(path) != ["began", "asked"]:
                await anyio.lowlevel.checkpoint()
        return ElicitResult(action="accept", content={"value": True})

    async with Client(server, mode="legacy", elicitation_callback=think) as client:
        await client.call_tool("ask", {})
    assert events(path) == ["began", "asked", "answered", "ended"]


_PROGRAM = """\
import asyncio, os, sys
from mcp.client import Client
from roundtrip import Recorder, Server

recorder = Recorder(sys.argv[1])
server = Server("shop", trace=recorder)

@server.tool()
async def greet(name: str) -> str:
    return f"Hello, {name}"

async def call(times):
    async with Client(server) as client:
        for number in range(times):
            await client.call_tool("greet", {"name": str(number)})
        ENDING
"""


@pytest.mark.parametrize(
    "ending",
    ["sys.exit(3)", "os.kill(os.getpid(), 2)", *at_night("raise RuntimeError", "asyncio.get_running_loop().stop()")],
)
def test_process_that_ends_by_itself_loses_no_line(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "calls.jsonl"
    program = _PROGRAM.replace("ENDING", ending) + "\nasyncio.run(call(30))\n"
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True, timeout=60)
    assert events(path) == ["began", "ended"] * 30


def test_forked_process_writes_no_line_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    # The child ends with lines of its parent waiting, and makes a call of its own.
    ending = textwrap.indent(
        textwrap.dedent("""
            child = os.fork()
            if not child:
                asyncio.events._set_running_loop(None)
                asyncio.run(server.call_tool("greet", {"name": "child"}))
                sys.exit()
            os.waitpid(child, 0)
        """),
        " " * 8,
    )
    program = _PROGRAM.replace("        ENDING", ending) + "\nasyncio.run(call(10))\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(path)], check=False, capture_output=True, timeout=60
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 22, done.stderr
    assert len({(line["instance"], line["serving"], line["event"]) for line in lines}) == 22


async def test_killed_process_loses_the_last_moment_at_most(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    # Each call prints its number once the client has its result.
    program = _PROGRAM.replace("        ENDING", "").replace(
        'await client.call_tool("greet", {"name": str(number)})',
        'await client.call_tool("greet", {"name": str(number)}); print(number, loop.time(), flush=True)',
    )
    program = program.replace("async def call(times):", "async def call(times):\n    loop = asyncio.get_running_loop()")
    process = await anyio.open_process([sys.executable, "-c", program + "\nasyncio.run(call(10**6))\n", str(path)])
    printed = b""
    with anyio.fail_after(60):
        assert process.stdout is not None
        while printed.count(b"\n") < 200:
            printed += await process.stdout.receive()
        process.send_signal(signal.SIGKILL)
        try:
            while True:
                printed += await process.stdout.receive()
        except anyio.EndOfStream:
            await process.wait()
    await process.aclose()
    done = [(int(number), float(at)) for number, at in re.findall(rb"^(\d+) (\S+)$", printed, re.MULTILINE)]
    written = events(path).count("ended")
    # The turn of the loop that the kill interrupted may have been long, on a busy machine.
    lost = [at for number, at in done if number >= written]
    assert not lost or done[-1][1] - lost[0] < 0.5, (written, done[-1], lost)
    assert len(calls_of(path)) >= written
