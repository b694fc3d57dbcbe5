"""`roundtrip trace explain` and `diff`: what was unusual in a call, and what differs between two."""

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from roundtrip.errors import RejectionReason
from tests.kit.transcripts import asked, began, ended, rejected, write
from tests.unit.cli.trace.shelf import LIVE, RETRY, retry_call, shelf


def test_everything_that_was_not_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["trace", "explain", RETRY, str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_a_plain_call_has_nothing_to_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "calls.jsonl", [began(), asked(), began(2, leg=2, round=1), ended(leg=2, round=1)]))
    assert main(["trace", "explain", "call-1", path]) == 0
    assert capsys.readouterr().out == (
        "Nothing to explain in call call-1: no question was asked twice, no token was rejected, and no leg failed.\n"
    )
    assert main(["trace", "explain", "call-1", path, "--all"]) == 0
    assert "Question 'format' was asked in round 1" in capsys.readouterr().out


def test_rejected_token_without_a_known_call_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "calls.jsonl", [began(), ended(), rejected(reason=RejectionReason.TAMPERED)])
    assert main(["trace", "explain", "last", str(path)]) == 0
    text = "\nRejected tokens without a known call, perhaps its own: 1 (trace ls --rejections)\n"
    assert capsys.readouterr().out.endswith(text)


def test_json_is_a_list_of_what_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shelf(tmp_path))
    assert main(["trace", "explain", RETRY, "--json", path]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(one["subject"], one["reason"], one["key"]) for one in told] == [
        ("replay", None, None),
        ("question", "reworded", "format"),
        ("rejection", "expired", None),
    ]
    assert main(["trace", "explain", LIVE, "--json", path]) == 1
    (failure,) = json.loads(capsys.readouterr().out)
    assert (failure["subject"], failure["error"], failure["round"], failure["leg"]) == ("failure", "ValueError", 1, 1)


def test_two_calls_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["trace", "diff", RETRY, LIVE, str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_equal_calls_of_two_files_differ_only_in_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = shelf(tmp_path)
    later = [line.model_copy(update={"at": line.at + 5000}) for line in retry_call()]
    other = write(tmp_path / "other.jsonl", later)
    assert main(["trace", "diff", f"{one}:{RETRY}", f"{other}:retry"]) == 0
    assert capsys.readouterr().out.endswith("\nNo differences, except in times.\n")
    assert main(["trace", "diff", RETRY, f"{other}:{RETRY}", str(one)]) == 0


def test_missing_call_or_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shelf(tmp_path))
    assert main(["trace", "diff", RETRY, "none", path]) == 2
    assert "there is no call 'none'" in capsys.readouterr().err
    assert main(["trace", "diff", RETRY, f"{path}.gone:{RETRY}", path]) == 2
    assert "there is no call" in capsys.readouterr().err
    assert main(["trace", "diff", RETRY, LIVE]) == 2
    assert "no transcript was given; add a file" in capsys.readouterr().err
