"""`roundtrip trace ls`: the columns, the filters, and the output for scripts."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from roundtrip.machine.facts import Reason
from tests.kit.hosts import ROOT
from tests.kit.tables import check_each
from tests.kit.transcripts import AT, began, rejected, write
from tests.unit.cli.trace.shelf import LIVE, PENDING, RETRY, shelf


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shelf(tmp_path)


def listed(capsys: pytest.CaptureFixture[str], path: Path, *filters: str) -> list[str]:
    """Return the ids of the calls that pass some filters."""
    code = main(["trace", "ls", "--json", *filters, str(path)])
    calls = [call["call"] for call in json.loads(capsys.readouterr().out)]
    assert code == (0 if calls else 1)
    return calls


def test_the_newest_call_is_last(path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["trace", "ls", str(path)]) == 0
    assert capsys.readouterr().out == snapshot


def test_json_is_a_list_of_objects(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "ls", "--json", str(path)]) == 0
    calls = json.loads(capsys.readouterr().out)
    assert [(call["call"], call["tool"], call["state"], call["rounds"]) for call in calls] == [
        (RETRY, "order", "completed", 2),
        (LIVE, "sell", "failed", 1),
        (PENDING, "pay", "awaiting_input", 1),
    ]
    assert calls[0]["instances"] == ["a", "b", "c"]
    assert calls[0]["replays"] == 1
    assert calls[2]["pending"] == ["pay"]
    assert calls[2]["until"] == AT + 901


def test_filters(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(filters: list[str], expected: list[str]) -> None:
        assert listed(capsys, path, *filters) == expected

    check_each(
        [
            ([], [RETRY, LIVE, PENDING]),
            (["--newest"], [PENDING, LIVE, RETRY]),
            (["--tool", "order"], [RETRY]),
            (["--tool", "order", "--tool", "p*"], [RETRY, PENDING]),
            (["--state", "failed"], [LIVE]),
            (["--state", "awaiting_input"], [PENDING]),
            (["--outcome", "declined"], [RETRY]),
            (["--outcome", "decline"], [RETRY]),
            (["--outcome", "lost"], [RETRY]),
            (["--outcome", "accepted"], [RETRY, LIVE]),
            (["--outcome", "cancelled"], []),
            (["--reason", "reworded"], [RETRY]),
            (["--reason", "expired"], [RETRY]),
            (["--reason", "schema-changed"], []),
            (["--rounds", ">1"], [RETRY]),
            (["--rounds", "1"], [LIVE, PENDING]),
            (["--rounds", ">=2"], [RETRY]),
            (["--rounds", "< 2"], [LIVE, PENDING]),
            (["--rounds", "<=2", "--tool", "sell"], [LIVE]),
            (["--since", "2026-11-18T11:10:00"], [RETRY, LIVE, PENDING]),
            (["--since", "2026-11-18T11:11:00+00:00"], [RETRY, PENDING]),
            (["--since", "2026-11-19"], []),
        ],
        check,
    )


def test_since_takes_an_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC).timestamp() - AT
    path = write(tmp_path / "calls.jsonl", [began(now - 3000, call="old"), began(now - 60, call="young", serving=2)])
    assert listed(capsys, path, "--since", "2m") == ["young"]
    assert listed(capsys, path, "--since", "2h") == ["old", "young"]
    assert listed(capsys, path, "--since", "30 s") == []


def test_docs_list_the_reasons_to_ask() -> None:
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([a-z ]+) \| [A-Z].*\. \|$", page, re.MULTILINE)
    assert listed == [reason.value for reason in Reason]


def test_filters_that_mean_nothing_are_rejected(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(filters: list[str], message: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["trace", "ls", *filters, str(path)])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err

    check_each(
        [
            (["--since", "soon"], "'soon' is not a time; use an age (30s, 10m, 2h, 3d) or a date"),
            (["--since", "9" * 400 + "d"], "is not a time; use an age"),
            (["--rounds", "many"], "must be a number of rounds such as 2, '>2'"),
            (["--reason", "bored"], "there is no reason 'bored'; reasons: new, missing"),
            (["--outcome", "won"], "there is no outcome 'won'; outcomes: accepted"),
            (["--state", "won"], "invalid choice: 'won'"),
        ],
        check,
    )


def test_no_match_exits_like_grep(tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(write(tmp_path / "empty.jsonl", []))

    def check(arguments: list[str], out: str, err: str) -> None:
        assert main(["trace", "ls", *arguments]) == 1
        assert capsys.readouterr() == (out, f"roundtrip trace: {err}\n")

    strays = "and 1 token rejected without a known call (list them with --rejections)\n"
    none = "no rejection matches the filters"
    check_each(
        [
            (["--tool", "none", str(path)], strays, "no recorded call matches the filters"),
            (["--rejections", "--reason", "expired", str(path)], "", none),
            ([empty], "", "no calls are recorded"),
            (["--json", empty], "[]\n", "no calls are recorded"),
        ],
        check,
    )


def test_rejections_without_a_call_are_listed_and_explained(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "ls", "--rejections", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2026-11-18 11:13:20  tampered\n    Instance 'a' rejected the token")
    assert main(["trace", "ls", "--rejections", "--json", str(path)]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["reason"] == "tampered"
    assert "changed after it was signed" in told["text"]


def test_directory_and_environment_name_transcripts_and_lost_lines(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys, tmp_path) == [RETRY, LIVE, PENDING]
    write(path, ["{", "}", '{"v":7}'])
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(path))
    assert main(["trace", "ls", "--json", "--tool", "sell"]) == 0
    printed = capsys.readouterr()
    assert [call["call"] for call in json.loads(printed.out)] == [LIVE]
    assert "roundtrip trace: 2 lines are skipped: not part of a transcript" in printed.err
    assert "roundtrip trace: 1 line is skipped: written by a newer roundtrip; upgrade to read them" in printed.err


def test_command_without_its_transcript_says_how_to_name_one(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(arguments: list[str], message: str) -> None:
        assert main(["trace", *arguments]) == 2
        assert message in capsys.readouterr().err

    how = "no transcript was given; add a file or directory as the last argument, or set ROUNDTRIP_TRACE"
    check_each(
        [
            (["ls"], how),
            (["ls", str(tmp_path / "none.jsonl")], "there is no file"),
            (["show", str(path)], f"a call must come before the transcript, got {str(path)!r}; write: last {path}"),
        ],
        check,
    )


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2J\x9b31m\u202e\u2028\r\nb\x7f[red]x[/red]"
    lines = [began(call=hostile, tool=hostile, instance=hostile), rejected(tool=hostile, instance=hostile)]
    path = write(tmp_path / "calls.jsonl", lines)
    for arguments in (["ls"], ["ls", "--json"], ["ls", "--rejections"], ["ls", "--rejections", "--json"]):
        assert main(["trace", *arguments, str(path)]) == 0
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
        assert "[red]x[/red]" in out
