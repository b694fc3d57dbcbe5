"""Hosts start and reach the server by what `roundtrip host-config` prints."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from roundtrip.cli import main
from roundtrip.cli.host_config import HostFacts, all_hosts
from roundtrip.server.key_files import KeyFile
from tests.clients.drivers import node_with
from tests.interaction.serving.host_shop import printed
from tests.interaction.serving.services import KEY, Service, environment
from tests.kit.hosts import ROOT, WAIT
from tests.kit.players import Person, text_of
from tests.kit.programs import needs

pytestmark = pytest.mark.anyio


def started_by(host: HostFacts, text: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that a host starts, and its variables."""
    if host.json:
        (entry,) = json.loads(text)[host.json].values()
        return [entry["command"], *entry["args"]], entry.get("env", {})
    words = shlex.split(text)
    before, command = words[: words.index("--")], words[words.index("--") + 1 :]
    env = [before[place + 1] for place, word in enumerate(before) if word == host.env_flag]
    return command, dict(one.split("=", 1) for one in env)


@pytest.mark.parametrize("host", all_hosts(), ids=lambda host: host.name)
async def test_host_starts_the_server_from_anywhere(
    host: HostFacts, project: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["keys", "new", "keys"]) == 0
    out, told = printed(capsys, host.name, "host_shop.py")
    key = KeyFile.read(project / "keys").signs.key
    assert key not in out + told
    command, env = started_by(host, out)
    assert Path(command[0]).is_absolute()
    assert env == {"ROUNDTRIP_KEY_FILE": str(project / "keys")}
    started = StdioServerParameters(
        command=command[0], args=command[1:], cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)}
    )
    with anyio.fail_after(WAIT * 3):
        async with Client(started, elicitation_callback=Person({"value": 2})) as client:
            result = await client.call_tool("order", {"title": "Dune"})
    assert text_of(result) == "2 of Dune in my project, own key: False"


def test_server_with_keys_in_its_code_needs_no_key_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "from roundtrip import Server\nfrom fastmcp import FastMCP\nfrom roundtrip.fastmcp import install\n"
    (project / "own.py").write_text(f"{head}server = Server('own', keys=['{KEY}'])\n")
    (project / "fast.py").write_text(f"{head}server = FastMCP('fast')\ninstall(server, keys=['{KEY}'])\n")
    (project / "plain.py").write_text("from mcp.server import MCPServer\nserver = MCPServer('plain')\n")
    for file in ("own.py", "fast.py", "plain.py"):
        _, told = printed(capsys, "mcp-json", file)
        assert "no key file" not in told


def inspected(words: Sequence[str], home: Path) -> list[str]:
    """Return the tools that the Inspector lists; its words are those of `npx`."""
    package = "@modelcontextprotocol/inspector"
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
def test_inspector_takes_the_printed_commands(
    project: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["keys", "new", "keys"]) == 0
    out, _ = printed(capsys, "inspector", "host_shop.py")
    assert inspected(shlex.split(out), tmp_path) == ["order"]
    with Service("host_shop.py", folder=project) as service:
        out, _ = printed(capsys, "inspector", "--http", service.url, "--name", "shop")
        assert inspected(shlex.split(out), tmp_path) == ["order"]
