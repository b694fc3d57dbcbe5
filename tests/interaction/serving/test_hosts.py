"""`roundtrip host-config` prints texts with which a host starts or reaches the server."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from roundtrip.cli import main
from roundtrip.cli.host_config import COMMAND, HostFacts, Launch, all_hosts, snippet
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.server.key_files import KeyFile
from tests.clients.drivers import node_with
from tests.interaction.serving.services import KEY, Service, environment
from tests.kit.hosts import ROOT, WAIT
from tests.kit.players import Person, text_of

pytestmark = pytest.mark.anyio

NAMES: Final = [host.name for host in all_hosts()]
HOSTS: Final = pytest.mark.parametrize("host", all_hosts(), ids=NAMES)
URL: Final = "http://127.0.0.1:8000/mcp"

SHOP: Final = '''\
import os
from pathlib import Path
from roundtrip import Context, Server

print("not for the host")
server = Server("my shop!")

@server.tool
async def order(title: str, ctx: Context) -> str:
    """Order a book."""
    copies = await ctx.ask("copies", f"How many of {title}?", int)
    return f"{copies} of {title} in {Path.cwd().name}, own key: {server.identity().own_key}"
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "host_shop.py").write_text(SHOP)
    monkeypatch.chdir(folder)
    for name in ("ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["host-config", *arguments]) == 0
    out, told = capsys.readouterr()
    return out, told


def started_by(host: HostFacts, text: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that a host starts, and its variables."""
    if host.json:
        (entry,) = json.loads(text)[host.json].values()
        return [entry["command"], *entry["args"]], entry.get("env", {})
    words = shlex.split(text)
    before, command = words[: words.index("--")], words[words.index("--") + 1 :]
    env = [before[place + 1] for place, word in enumerate(before) if word == host.env_flag]
    return command, dict(one.split("=", 1) for one in env)


@HOSTS
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


@HOSTS
def test_address_is_named_with_the_servers_name(
    host: HostFacts, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    out, told = printed(capsys, host.name, "--http", URL, "--name", "shop")
    assert URL in out
    assert host.name == "inspector" or "shop" in out
    assert host.place in told
    assert host.http_note in told
    assert out == printed(capsys, host.name, "host_shop.py", "--http", URL, "--name", "shop")[0]


def test_file_of_each_host_has_its_own_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def read(*arguments: str) -> Any:
        return json.loads(printed(capsys, *arguments)[0])

    assert read("vscode", "--http", URL, "--name", "a b") == {"servers": {"a-b": {"type": "http", "url": URL}}}
    assert read("cursor", "--http", URL, "--name", "a") == {"mcpServers": {"a": {"url": URL}}}
    assert read("mcp-json", "--http", URL, "--name", "a") == {"mcpServers": {"a": {"type": "http", "url": URL}}}
    assert read("vscode", "host_shop.py")["servers"]["my-shop"]["type"] == "stdio"
    assert set(read("claude-desktop", "host_shop.py")["mcpServers"]["my-shop"]) == {"command", "args"}


def test_command_of_claude_code_has_its_options_before_the_name() -> None:
    (host,) = (one for one in all_hosts() if one.name == "claude-code")
    launch = Launch("shop", command=("/venv/bin/python", "-m", "it's"), env={"A": "b c", "D": "e"})
    assert snippet(host, launch) == (
        "claude mcp add --env 'A=b c' --env D=e --transport stdio shop -- /venv/bin/python -m 'it'\"'\"'s'"
    )


@pytest.mark.parametrize("given", ["flag", "variable"])
def test_key_file_is_named_by_its_full_path(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    assert main(["keys", "new", "other"]) == 0
    flags = ["--key-file", "other"] if given == "flag" else []
    if given == "variable":
        monkeypatch.setenv("ROUNDTRIP_KEY_FILE", "other")
    out, told = printed(capsys, "mcp-json", "host_shop.py", *flags)
    assert json.loads(out)["mcpServers"]["my-shop"]["env"] == {"ROUNDTRIP_KEY_FILE": str(project / "other")}
    assert "no key file" not in told


def test_server_with_keys_in_its_code_needs_no_key_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "from roundtrip import Server\nfrom fastmcp import FastMCP\nfrom roundtrip.fastmcp import install\n"
    (project / "own.py").write_text(f"{head}server = Server('own', keys=['{KEY}'])\n")
    (project / "fast.py").write_text(f"{head}server = FastMCP('fast')\ninstall(server, keys=['{KEY}'])\n")
    (project / "plain.py").write_text("from mcp.server import MCPServer\nserver = MCPServer('plain')\n")
    for file in ("own.py", "fast.py", "plain.py"):
        _, told = printed(capsys, "mcp-json", file)
        assert "no key file" not in told


def test_missing_key_file_is_said_and_a_key_is_never_printed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "keys").write_text("the keys of the house\n")
    out, told = printed(capsys, "mcp-json", "host_shop.py")
    assert "env" not in json.loads(out)["mcpServers"]["my-shop"]
    assert "no key file: calls do not survive a restart" in told
    monkeypatch.setenv("ROUNDTRIP_KEYS", KEY)
    out, told = printed(capsys, "mcp-json", "host_shop.py")
    assert KEY not in out + told
    assert "ROUNDTRIP_KEYS is not printed, as it is secret" in told


def test_standard_error_says_what_the_host_can_be_asked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = printed(capsys, "claude-code", "host_shop.py")
    assert "what Claude Code can be asked, as of 2026-08-26: forms yes, URLs no" in told
    assert "can be asked" not in printed(capsys, "mcp-json", "host_shop.py")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the server as MODULE:SERVER or a file, or its address with --http URL"),
        (["nowhere.py"], "no file 'nowhere.py'"),
        (["host_shop.py", "--key-file", "nowhere"], "the key file"),
        (["--http", URL], "give the server's name in the host with --name"),
        (["--http", "shop", "--name", "a"], "--http must be an http(s) address, got 'shop'"),
        (["--http", "http://", "--name", "a"], "names no host"),
        (["--http", URL, "--name", "a", "--key-file", "k"], "--key-file is for servers that the host starts"),
    ],
)
def test_incomplete_command_is_rejected(
    project: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["host-config", "cursor", *arguments]) == 2
    out, told = capsys.readouterr()
    assert not out
    assert message in told


def test_parser_knows_the_hosts_of_the_data_file() -> None:
    parser = OptionsAnywhere()
    COMMAND.configure(parser)
    (action,) = (one for one in parser._actions if one.dest == "host")  # pyright: ignore[reportPrivateUsage]
    assert list(action.choices or ()) == NAMES


@HOSTS
def test_facts_of_a_host_have_sources_with_dates(host: HostFacts) -> None:
    assert host.sources
    assert all(type(one.date) is date and one.url.startswith("https://") and one.says for one in host.sources)
    assert bool(host.json) != bool(host.stdio)
    assert not host.client or host.known is not None


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


@pytest.mark.nightly
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
