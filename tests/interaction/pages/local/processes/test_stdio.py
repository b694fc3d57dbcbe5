"""Servers on stdio, in processes of their own, whose user answers in a browser that `BROWSER` names."""

import json
import os
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

from tests.interaction.pages.local.desktop import ONE, Desktop, on_desk, tab
from tests.interaction.pages.local.processes.machine import Machine
from tests.interaction.pages.ways import modes
from tests.kit.hosts import WAIT
from tests.kit.page_users import text_of
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
    # Every user of the machine can read the argument of the browser: it is the address of no page.
    (argument,) = machine.lines("open")
    assert "/open/" in argument
    pages = {line.split()[0] for line in machine.lines("page")}
    assert [page for page in pages if "/ask/" not in page or page in argument] == []
    assert {"continue_call", "book"} <= listed.keys()
    assert listed["book"].output_schema is None


async def test_no_browser_opens_over_ssh(tmp_path: Path) -> None:
    machine = Machine(tmp_path, variables={"SSH_CONNECTION": "10.0.0.1 22"}, lacks=["ROUNDTRIP_LOCAL_PAGES"])
    async with machine.client() as client:
        assert text_of(await client.call_tool("guess")) == "any"
        with pytest.raises(MCPError, match="over SSH") as caught:
            await client.call_tool("many", {"number": 1})
    assert caught.value.error.code == -32021
    assert machine.lines("open") == []


async def test_browser_that_cannot_start_ends_the_call_and_the_channel(tmp_path: Path) -> None:
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


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can start programs of others")
async def test_program_of_another_user_is_turned_away() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one:
        await client.call_tool("many", ONE)
        address = await desktop.address()
        fetch = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=60).read())"
        thief = await anyio.run_process(["/usr/bin/env", "python3", "-c", fetch, address], check=False, user=65534)
        assert b"HTTP Error 403" in thief.stderr
        assert b"Number" not in thief.stdout
        # It has not used the address.
        assert (await one.open(address)).heading == "Number 0?"
