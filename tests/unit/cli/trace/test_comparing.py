"""`roundtrip trace diff`: two calls of one transcript, or of two."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from roundtrip.cli import main
from tests.kit.transcripts import write
from tests.unit.cli.trace.shelf import LIVE, RETRY, retry_call, shelf


def test_two_calls_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["trace", "diff", RETRY, LIVE, str(shelf(tmp_path))]) == 1
    assert capsys.readouterr().out == snapshot


def test_equal_calls_of_two_files_differ_only_in_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = shelf(tmp_path)
    later = [line.model_copy(update={"at": line.at + 5000}) for line in retry_call()]
    other = write(tmp_path / "other.jsonl", later)
    assert main(["trace", "diff", f"{one}:{RETRY}", f"{other}:retry"]) == 0
    assert capsys.readouterr().out.endswith("\nNo difference except in times.\n")
    assert main(["trace", "diff", RETRY, f"{other}:{RETRY}", str(one)]) == 0


def test_missing_call_or_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(shelf(tmp_path))
    assert main(["trace", "diff", RETRY, "none", path]) == 2
    assert "there is no call 'none'" in capsys.readouterr().err
    assert main(["trace", "diff", RETRY, f"{path}.gone:{RETRY}", path]) == 2
    assert "there is no call" in capsys.readouterr().err
    assert main(["trace", "diff", RETRY, LIVE]) == 2
    assert "name a transcript" in capsys.readouterr().err
