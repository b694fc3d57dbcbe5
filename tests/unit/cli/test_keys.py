"""`roundtrip keys`: a key file, and the three steps of its rotation."""

import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from roundtrip import Server
from roundtrip.cli import main
from roundtrip.server.key_files import KeyFile, Role
from tests.kit.tables import check_each

KEY = "7f" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    assert main(["keys", "new", str(made)]) == 0
    return made


def _hints(path: Path) -> tuple[str, ...]:
    return Server("shop", keys=KeyFile.read(path).keys).identity().keys


def _aged(path: Path, seconds: float) -> None:
    """Return a key file as if it had been written some seconds ago."""
    found = KeyFile.read(path)
    assert found.other is not None
    now = datetime.now(UTC)
    then = f"{now - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    path.write_text(path.read_text().replace(f"{found.other.since:%Y-%m-%dT%H:%M:%SZ}", then))


def _refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["keys", *arguments]) == 2
    return capsys.readouterr().err


def test_new_key_file_is_private_and_replaces_none(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(KeyFile.read(path).keys) == 1
    before = path.read_bytes()
    assert "was not changed" in _refused(["new", str(path)], capsys)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path], "nothing is left over"


def test_rotation_takes_three_steps_verified_by_all_neighbors(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old,) = _hints(path)
    assert main(["keys", "rotate", str(path)]) == 0
    first, new = _hints(path)
    assert first == old
    assert "must follow step 2" in _refused(["rotate", str(path), "--back"], capsys)
    for options, hints in (([], (new, old)), (["--back"], (old, new)), ([], (new, old))):
        assert main(["keys", "rotate", str(path), *options]) == 0
        assert _hints(path) == hints
    _aged(path, 3601)
    assert main(["keys", "rotate", str(path)]) == 0
    assert _hints(path) == (new,)


def test_old_key_is_not_dropped_while_its_tokens_live(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["keys", "rotate", str(path)]) == 0
    before = path.read_bytes()
    forced = path.with_name("forced")
    forced.write_bytes(before)
    forced.chmod(0o600)
    assert main(["keys", "rotate", str(forced), "--force"]) == 0
    assert KeyFile.read(forced).other is None
    assert "too early" in _refused(["rotate", str(path)], capsys)
    _aged(path, 120)
    assert "too early" in _refused(["rotate", str(path), "--max-age", "300"], capsys)
    assert main(["keys", "rotate", str(path), "--max-age", "100"]) == 0
    assert before != path.read_bytes()


def test_a_rotated_file_keeps_its_mode_and_its_link(path: Path) -> None:
    path.chmod(0o640)
    link = path.parent / "link"
    link.symlink_to(path)
    assert main(["keys", "rotate", str(link)]) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    found = KeyFile.read(path).other
    assert found is not None
    assert found.role is Role.NEXT


def test_nothing_secret_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["keys", "rotate", str(path)]) == 0
    assert main(["keys", "show", str(path)]) == 0
    told = capsys.readouterr()
    assert _hints(path)[0] in told.out
    for key in KeyFile.read(path).keys:
        assert key not in told.out + told.err
        assert key[:8] not in told.out + told.err


def test_a_printed_key_is_one_that_a_server_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["keys", "new", "--print"]) == 0
    key = capsys.readouterr().out.strip()
    monkeypatch.setenv("ROUNDTRIP_KEYS", f"{key}, {KEY}")
    assert Server("shop").identity().keys == Server("shop", keys=[key, KEY]).identity().keys


def test_invalid_key_file_is_rejected_without_revealing_its_contents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(content: str) -> None:
        path = tmp_path / "keys"
        path.write_text(content, encoding="latin-1")
        assert KEY not in _refused(["rotate", str(path)], capsys)
        assert path.read_text(encoding="latin-1") == content

    check_each(["", "signs zz 2026-01-01T00:00:00Z\n", "\xff\0", f"signs {KEY} today\n", KEY], check)


# The environment.


def test_a_server_reads_the_key_file_that_the_environment_names(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROUNDTRIP_KEY_FILE", str(path))
    identity = Server("shop").identity()
    assert (identity.keys, identity.own_key) == (_hints(path), False)
    assert "chmod 600" not in caplog.text
    path.chmod(0o644)
    Server("shop")
    assert "chmod 600" in caplog.text


def test_an_environment_that_gives_no_usable_keys_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(variables: dict[str, str], told: str) -> None:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(ValueError, match=told):
                Server("shop")
            # Keys that a server is given count before the environment.
            assert Server("shop", keys=[KEY]).identity().own_key is False

    check_each(
        [
            ({"ROUNDTRIP_KEYS": "short"}, "ROUNDTRIP_KEYS"),
            ({"ROUNDTRIP_KEYS": KEY, "ROUNDTRIP_KEY_FILE": "keys"}, "both"),
            ({"ROUNDTRIP_KEYS": " , "}, "empty"),
            ({"ROUNDTRIP_KEY_FILE": ""}, "empty"),
            ({"ROUNDTRIP_KEY_FILE": "/nowhere/keys"}, "cannot be read: .*; make one with: roundtrip keys new"),
            ({"ROUNDTRIP_KEYS": f"{KEY},{KEY}"}, "repeats"),
        ],
        check,
    )


def test_a_server_without_keys_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Server("shop").identity().own_key
    assert Server("shop").identity().keys != Server("shop").identity().keys
    monkeypatch.setenv("ROUNDTRIP_KEYS", KEY)
    with pytest.raises(ValueError, match="ROUNDTRIP_KEYS"):
        Server()


@pytest.mark.skipif(os.name != "posix", reason="folders are not locked elsewhere")
def test_only_one_rotation_runs_at_a_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    before = path.read_bytes()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        assert "another `rotate`" in _refused(["rotate", str(path)], capsys)
        assert path.read_bytes() == before
    finally:
        os.close(folder)
    assert main(["keys", "rotate", str(path)]) == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can write for others")
def test_a_rotated_file_keeps_its_owner(path: Path) -> None:
    os.chown(path, 12345, 23456)
    assert main(["keys", "rotate", str(path)]) == 0
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_a_step_or_age_that_cannot_be_is_rejected(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(seconds: str) -> None:
        with pytest.raises(SystemExit):
            main(["keys", "rotate", str(path), "--max-age", seconds])
        assert "must be a number of seconds" in capsys.readouterr().err

    check_each(["1e300", "nan", "-1"], check)
    assert main(["keys", "rotate", str(path), "--step", "1"]) == 0
    before = path.read_bytes()
    assert "--step must be the next step, 2, got 1" in _refused(["rotate", str(path), "--step", "1"], capsys)
    assert path.read_bytes() == before
    assert main(["keys", "rotate", str(path), "--step", "2"]) == 0
    assert "must be the next step, 3" in _refused(["rotate", str(path), "--step", "2"], capsys)
