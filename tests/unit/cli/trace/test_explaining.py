"""`roundtrip trace explain`: one sentence for each thing that was not plain, and a code for scripts."""

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from tests.unit.cli.trace.shelf import LIVE, RETRY, shelf


def test_everything_that_was_not_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["trace", "explain", RETRY, str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_all_has_the_plain_ones_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["trace", "explain", RETRY, "--all", str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_a_plain_call_has_nothing_to_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shelf(tmp_path))
    assert main(["trace", "explain", LIVE, path]) == 0
    assert capsys.readouterr().out == "Nothing to explain: every question was put once, and no token was refused.\n"
    assert main(["trace", "explain", LIVE, path, "--all"]) == 0
    assert "Question 'price' was put in round 1" in capsys.readouterr().out


def test_json_is_a_list_of_what_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shelf(tmp_path))
    assert main(["trace", "explain", RETRY, "--json", path]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(one["subject"], one["reason"], one["key"]) for one in told] == [
        ("replay", None, None),
        ("question", "reworded", "format"),
        ("refusal", "expired", None),
    ]
    assert main(["trace", "explain", LIVE, "--json", path]) == 0
    assert json.loads(capsys.readouterr().out) == []
