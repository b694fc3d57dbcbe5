"""Hosts start and reach the server by the texts of `docs/hosts.md`."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from roundtrip.cli import main
from tests.clients.drivers import node_with
from tests.docs.pages import blocks
from tests.interaction.serving.services import Service, environment
from tests.kit.hosts import ROOT, WAIT
from tests.kit.players import Person, text_of
from tests.kit.programs import needs

pytestmark = pytest.mark.anyio

TEXTS: Final = [block.text for block in blocks(ROOT / "docs" / "hosts.md")]
STARTING: Final = [text for text in TEXTS if "--stdio" in text]
FOLDER: Final = "/home/ada/cinema"
PYTHON: Final = f"{FOLDER}/.venv/bin/python"
URL: Final = "http://127.0.0.1:8000/mcp"

CINEMA: Final = '''\
from pathlib import Path
from roundtrip import Context, Server

print("not for the host")
server = Server("cinema")

@server.tool
async def book(film: str, ctx: Context) -> str:
    """Book seats."""
    seats = await ctx.ask("seats", f"How many for {film}?", int)
    return f"{seats} for {film} in {Path.cwd().name}, own key: {server.identity().own_key}"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "cinema.py").write_text(CINEMA)
    assert main(["keys", "new", str(folder / "keys")]) == 0
    return folder


def filled(text: str, project: Path) -> str:
    """Return a text of the page with the paths of a project."""
    return text.replace(PYTHON, sys.executable).replace(FOLDER, str(project))


def started_by(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that a host starts, and its variables."""
    if text.startswith("{"):
        ((entry,),) = (servers.values() for servers in json.loads(text).values())
        return [entry["command"], *entry["args"]], entry["env"]
    words = shlex.split(text)
    place = words.index("--")
    return words[place + 1 :], dict(word.split("=", 1) for word in words[:place] if word.startswith("ROUNDTRIP_"))


@pytest.mark.parametrize("text", STARTING, ids=["claude-code", "claude-desktop", "vscode", "inspector"])
async def test_host_starts_the_server_from_anywhere(text: str, project: Path, tmp_path: Path) -> None:
    command, env = started_by(filled(text, project))
    started = StdioServerParameters(
        command=command[0], args=command[1:], cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)}
    )
    with anyio.fail_after(WAIT * 3):
        async with Client(started, elicitation_callback=Person({"value": 2})) as client:
            result = await client.call_tool("book", {"film": "Solaris"})
    assert text_of(result) == "2 for Solaris in project, own key: False"


def inspected(text: str, home: Path) -> list[str]:
    """Return the tools that the Inspector lists, given a command for it."""
    package = "@modelcontextprotocol/inspector"
    words: Sequence[str] = shlex.split(text)
    node = node_with(package)
    flags = list(words[words.index(f"{package}@2") + 1 :])
    place = flags.index("--") if "--" in flags else len(flags)
    flags[place:place] = ["--format", "json", "-q", "--method", "tools/list"]
    script = ROOT / ".ci" / "node_modules" / package / "clients" / "launcher" / "build" / "index.js"
    done = subprocess.run(
        [node, script, "--cli", *flags],
        capture_output=True,
        text=True,
        timeout=WAIT * 3,
        stdin=subprocess.DEVNULL,
        env={**environment(), "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory"},
        cwd=home,
    )
    said = done.stdout or done.stderr
    assert done.returncode == 0, said
    return [tool["name"] for tool in json.loads(said[said.index("{") :])["result"]["tools"]]


@needs("node")
@pytest.mark.skipif(os.name != "posix", reason="the processes are forked")
def test_inspector_takes_the_commands(project: Path, tmp_path: Path) -> None:
    starting, reaching = (text for text in TEXTS if "inspector" in text)
    assert inspected(filled(starting, project), tmp_path) == ["book"]
    with Service("cinema.py", folder=project) as service:
        assert inspected(reaching.replace(URL, service.url), tmp_path) == ["book"]
