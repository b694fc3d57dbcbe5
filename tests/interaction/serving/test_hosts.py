"""`roundtrip host-config` prints texts with which a host starts or reaches the server."""

import json
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.cli import main
from roundtrip.cli.host_config import HostFacts, Launch, all_hosts, snippet
from tests.interaction.serving.host_shop import URL, printed
from tests.interaction.serving.services import KEY
from tests.kit.tables import check_each

pytestmark = pytest.mark.anyio


def test_address_is_named_with_the_servers_name(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    def check(host: HostFacts) -> None:
        out, told = printed(capsys, host.name, "--http", URL, "--name", "shop")
        assert URL in out, host.name
        assert host.name == "inspector" or "shop" in out, host.name
        assert host.place in told, host.name
        assert host.http_note in told, host.name
        assert out == printed(capsys, host.name, "host_shop.py", "--http", URL, "--name", "shop")[0], host.name

    check_each(all_hosts(), check)


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


INCOMPLETE: Final[list[tuple[list[str], str]]] = [
    ([], "give the server as MODULE:SERVER or a file, or its address with --http URL"),
    (["nowhere.py"], "no file 'nowhere.py'"),
    (["host_shop.py", "--key-file", "nowhere"], "the key file"),
    (["--http", URL], "give the server's name in the host with --name"),
    (["--http", "shop", "--name", "a"], "--http must be an http(s) address, got 'shop'"),
    (["--http", "http://", "--name", "a"], "names no host"),
    (["--http", URL, "--name", "a", "--key-file", "k"], "--key-file is for servers that the host starts"),
]


def test_incomplete_command_is_rejected(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: list[str], message: str) -> None:
        code = main(["host-config", "cursor", *arguments])
        out, told = capsys.readouterr()
        assert (code, out, message in told) == (2, "", True), told

    check_each(INCOMPLETE, check)


def has_dated_sources(host: HostFacts) -> bool:
    return bool(host.sources) and all(
        type(one.date) is date and one.url.startswith("https://") and one.says for one in host.sources
    )


def test_facts_of_a_host_have_sources_with_dates() -> None:
    assert [host.name for host in all_hosts() if not has_dated_sources(host)] == []
    assert [host.name for host in all_hosts() if bool(host.json) == bool(host.stdio)] == []
    assert [host.name for host in all_hosts() if host.client and host.known is None] == []
