"""`roundtrip doctor MODULE:SERVER` starts instances of a server and examines them."""

import json
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from roundtrip.cli import main
from tests.interaction.serving.services import KEY, Service

SHOP: Final = (
    "from roundtrip import Server\nserver = Server('bookshop')\n\n@server.tool\ndef buy() -> str:\n    return ''\n"
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "doctor_shop.py"
    file.write_text(SHOP)
    return file


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def problems(data: dict[str, Any]) -> set[str]:
    return {one["topic"] for one in data["findings"] if one["level"] == "problem"}


def test_instances_with_one_key_fit_together_and_are_ended(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDTRIP_KEYS", KEY)
    # Settings for production do not hinder it.
    monkeypatch.setenv("ROUNDTRIP_WORKERS", "3")
    code, data = report(capsys, "doctor_shop.py")
    assert (code, problems(data)) == (0, set())
    addresses: set[str] = {one["url"] for one in data["places"]}
    assert len(addresses) == 2
    for address in addresses:
        parts = urlsplit(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((parts.hostname, parts.port or 0), timeout=60)


def test_instances_that_make_their_own_keys_do_not_fit(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = report(capsys, f"{shop}:server")
    assert code == 1
    assert problems(data) == {"keys", "calls"}


def test_server_that_does_not_start_is_reported_with_its_place(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text("print('hello')\n1 / 0\n")
    assert main(["doctor", "doctor_shop.py"]) == 2
    told = capsys.readouterr().err
    assert told == (
        "roundtrip doctor: importing 'doctor_shop.py' failed: ZeroDivisionError: division by zero\n"
        '  File "doctor_shop.py", line 2, in <module>\n    1 / 0\n    ~~^~~\n'
    )


OTHERS: Final = {
    "fastmcp": "from fastmcp import FastMCP\nfrom roundtrip.fastmcp import install\nserver = FastMCP('bookshop')\n",
    "sdk": "from mcp.server import MCPServer\nfrom roundtrip.install import install\nserver = MCPServer('bookshop')\n",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_server_of_another_class_cannot_be_probed(shop: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(f"{OTHERS[kind]}install(server, keys=['{KEY}'])\n")
    assert main(["doctor", "doctor_shop.py"]) == 2
    told = capsys.readouterr().err
    assert told == (
        "roundtrip doctor: 'doctor_shop.py' is a FastMCP or SDK server, which cannot be probed, even after install(); "
        "examine it with roundtrip audit\n"
    )


def test_probe_logs_no_warning_about_itself(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Service(shop.name, "--no-sessions", folder=shop.parent, ROUNDTRIP_KEYS=KEY, ROUNDTRIP_PROBE="1") as service:
        code, data = report(capsys, service.url)
    assert (code, problems(data)) == (0, set())
    assert [one["level"] for one in data["findings"] if one["topic"] == "older clients"] == ["note"]
    assert not [line for line in service.log if "could not ask" in line or "WARNING" in line]
