"""Mistakes in the arguments of `roundtrip ui`, and its file of users."""

import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from roundtrip.cli import main
from roundtrip.ui.access import add_user, read_users
from tests.kit.tables import check_each


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: list[str], part: str) -> None:
        names = {name: tmp_path / name for name in ("users", "open", "wrong")}
        names["users"].write_text(f"ana sha256:{'0' * 64}\n")
        names["open"].write_text(f"ana sha256:{'0' * 64}\n")
        names["wrong"].write_text("ana secret\n")
        for name, path in names.items():
            path.chmod(0o644 if name == "open" else 0o600)
        assert main(["ui", *(one.format(**names) for one in arguments), str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert part in said
        assert "secret" not in said

    check_each(
        [
            (["--host", "0.0.0.0"], "add --users FILE and --base-url"),
            (["--base-url", "https://calls.example"], "add --users FILE, or remove it"),
            (["--users", "{users}"], "add --base-url URL"),
            (["--users", "{users}", "--base-url", "http://calls.example"], "must begin with https://"),
            (["--users", "{users}", "--base-url", "calls.example"], "must be an address"),
            (["--users", "{users}", "--base-url", "https://u@calls.example"], "must be an address"),
            (["--users", "{users}", "--base-url", "https://[x"], "must be an address"),
            (["--users", "missing", "--base-url", "https://calls.example"], "add a user with --add-user NAME"),
            (["--users", "{open}", "--base-url", "https://calls.example"], "must be readable only by its owner"),
            (["--users", "{wrong}", "--base-url", "https://calls.example"], "line 1 of"),
            (["--users", "{users}", "--add-user", "a b"], "a name must consist of"),
            (["--add-user", "ana"], "add --users FILE"),
        ],
        check,
    )


@pytest.mark.parametrize("port", ["65536", "-1", "many"])
def test_number_that_is_no_port_is_rejected(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", "--port", port])
    assert ended.value.code == 2
    assert f"argument --port: must be a whole number from 0 to 65535, got {port!r}" in capsys.readouterr().err


def test_missing_file_and_taken_port_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", str(tmp_path / "nothing.jsonl")]) == 2
    assert "nothing.jsonl" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["ui", "--port", str(port), str(tmp_path)]) == 2
    assert f"cannot serve on 127.0.0.1:{port}: Address already in use; try another --port" in capsys.readouterr().err


def test_users_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "users"
    names = [f"user{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        tokens = dict(zip(names, pool.map(partial(add_user, path), names), strict=True))
    users = read_users(path)
    assert users.keys() == tokens.keys()
