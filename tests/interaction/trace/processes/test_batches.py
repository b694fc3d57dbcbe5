"""A recorder loses no line when a process ends by itself, and little when it is killed."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import anyio
import pytest

from tests.interaction.trace.transcribed import calls_of, events
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio


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
    ["sys.exit(3)", "os.kill(os.getpid(), 2)", "raise RuntimeError", "asyncio.get_running_loop().stop()"],
)
def test_process_that_ends_by_itself_loses_no_line(path: Path, ending: str) -> None:
    program = _PROGRAM.replace("ENDING", ending) + "\nasyncio.run(call(30))\n"
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True, timeout=60)
    assert events(path) == ["began", "ended"] * 30


def test_forked_process_writes_no_line_of_its_parent(path: Path) -> None:
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


async def test_killed_process_keeps_the_lines_before_the_last_moment(path: Path) -> None:
    # Each call prints its number once the client has its result.
    program = _PROGRAM.replace("        ENDING", "").replace(
        'await client.call_tool("greet", {"name": str(number)})',
        'await client.call_tool("greet", {"name": str(number)}); print(number, flush=True)',
    )
    process = await anyio.open_process([sys.executable, "-c", program + "\nasyncio.run(call(10**6))\n", str(path)])
    assert process.stdout is not None
    printed = 0
    with anyio.fail_after(WAIT):
        while printed < 200:
            printed += (await process.stdout.receive()).count(b"\n")
        # It goes on with calls, or waits for a reader of its output.
        await until(lambda: events(path).count("ended") >= printed - 1)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await process.aclose()
    assert len(calls_of(path)) >= printed - 1
