"""The operator log of operators: its place, its lines, and files that cannot be written."""

import getpass
import stat
from pathlib import Path
from typing import Any

import pytest

from roundtrip.system import System
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.lines import ActedLine
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable, operator_log_path, user_of_system
from tests.kit.tables import check_each
from tests.unit.trace.tales import HOSTILE

AT = 1_795_000_000.25
SYSTEM = System(time=lambda: AT)


def log_at(path: Path | None, by: str = "ana") -> OperatorLog:
    return OperatorLog(path, program="command", by=by, system=SYSTEM)


def test_line_of_an_action_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "operators.jsonl"
    with log_at(path).open("call-1", "order", "cancel") as write_outcome:
        write_outcome("rejected", "it has ended already")
    (read,) = read_files([path]).lines
    assert read == ActedLine(
        at=AT,
        instance="command",
        call="call-1",
        tool="order",
        action="cancel",
        by="ana",
        outcome="rejected",
        why="it has ended already",
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [HOSTILE, "line\nline", "\udcff", "é" * 1000])
def test_hostile_names_stay_in_their_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "operators.jsonl"
    with log_at(path, by=name).open("call-1", name, "answer") as write_outcome:
        write_outcome("done", name)
    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == 1
    reading = read_files([path])
    assert (len(reading.lines), reading.lost) == (1, 0)


def test_file_is_opened_before_the_action(tmp_path: Path) -> None:
    def check(path: Path, told: str) -> None:
        with pytest.raises(OperatorLogUnwritable, match=told), log_at(path).open("call-1", "order", "cancel"):
            pass

    (tmp_path / "file").write_text("")
    unwritable = r"cannot write the operator log .*: .*; nothing was done; name another file"
    places = (tmp_path, tmp_path / "file" / "operators.jsonl", Path("nul\0"))
    missing = (tmp_path / "trces" / "operators.jsonl", "its folder does not exist; nothing was done")
    check_each([*((path, unwritable) for path in places), missing], check)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(("outcome", "said"), [("done", "was done"), ("rejected", "was rejected")])
def test_full_disk_is_reported_with_the_outcome(outcome: Any, said: str) -> None:
    with (
        log_at(Path("/dev/full")).open("call-1", "order", "cancel") as write_outcome,
        pytest.raises(OperatorLogUnwritable, match=f"the action {said} anyway"),
    ):
        write_outcome(outcome, "")


def test_log_without_a_file_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with log_at(None).open("call-1", "order", "cancel") as write_outcome:
        write_outcome("done", "")
    assert list(tmp_path.iterdir()) == []


def test_place_of_the_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(given: str | None, transcripts: list[str], variables: dict[str, str], expected: str | None) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "folder").mkdir(exist_ok=True)
        assert operator_log_path(given, transcripts, variables) == (None if expected is None else Path(expected))

    check_each(
        [
            ("a.jsonl", ["calls.jsonl"], {"ROUNDTRIP_OPERATOR_LOG": "b.jsonl"}, "a.jsonl"),
            (None, ["calls.jsonl"], {"ROUNDTRIP_OPERATOR_LOG": "b.jsonl"}, "b.jsonl"),
            (None, ["x/calls.jsonl"], {"ROUNDTRIP_TRACE": "y/calls.jsonl"}, "x/operators.jsonl"),
            (None, ["folder", "other"], {}, "folder/operators.jsonl"),
            (None, ["new/"], {}, "new/operators.jsonl"),
            (None, [], {"ROUNDTRIP_TRACE": "y/calls.jsonl"}, "y/operators.jsonl"),
            (None, [], {"ROUNDTRIP_OPERATOR_LOG": "", "ROUNDTRIP_TRACE": ""}, None),
        ],
        check,
    )


def test_operator_is_named_by_the_system_and_not_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    name = user_of_system()
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "another")
    assert getpass.getuser() == "another"
    assert user_of_system() == name
