"""`roundtrip trace explain`: one sentence for each unusual event, and an exit code for scripts."""

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from tests.kit.transcripts import asked, began, ended, write
from tests.unit.cli.trace.shelf import LIVE, RETRY, shelf


def test_everything_that_was_not_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["trace", "explain", RETRY, str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_a_plain_call_has_nothing_to_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "calls.jsonl", [began(), asked(), began(2, leg=2, round=1), ended(leg=2, round=1)]))
    assert main(["trace", "explain", "call-1", path]) == 0
    assert capsys.readouterr().out == (
        "Nothing to explain: every question was asked once, no token was rejected, and no leg failed.\n"
    )
    assert main(["trace", "explain", "call-1", path, "--all"]) == 0
    assert "Question 'format' was asked in round 1" in capsys.readouterr().out


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
