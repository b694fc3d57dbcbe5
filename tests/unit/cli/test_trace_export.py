"""`roundtrip trace export` writes a call in the chosen format to the chosen place."""

import stat
import sys
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli import main
from tests.unit.trace.tales import Tale, question

EVIL: Final = "\x1b]0;evil\x07\x7f\x9b31m"


@pytest.fixture
def transcript(tmp_path: Path) -> str:
    path = tmp_path / "calls.jsonl"
    tale = Tale("abcdefghijkl", tool=EVIL).began(1, arguments={"value": {"title": "Neuromancer"}})
    path.write_text(tale.asked(question("a")).write(), encoding="utf-8")
    return str(path)


def test_mermaid_goes_to_standard_output_as_text(transcript: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "export", "abc", transcript, "--mermaid"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("sequenceDiagram\n")
    assert all(character == "\n" or character.isprintable() for character in printed)
    assert "Neuromancer" not in printed


def test_a_page_goes_to_a_private_or_existing_file(
    transcript: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = tmp_path / "new.html", tmp_path / "old.html"
    old.touch()
    old.chmod(0o644)
    for target in (new, old):
        assert main(["trace", "export", "abc", "--html", "--output", str(target), transcript]) == 0
        assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr().out == ""
    if sys.platform != "win32":
        assert [stat.S_IMODE(target.stat().st_mode) for target in (new, old)] == [0o600, 0o644]


def test_format_and_place_are_checked(transcript: str, capsys: pytest.CaptureFixture[str]) -> None:
    for formats in ([], ["--html", "--mermaid"]):
        with pytest.raises(SystemExit) as exit:
            main(["trace", "export", "abc", transcript, *formats])
        assert exit.value.code == 2
        assert "--mermaid" in capsys.readouterr().err
    assert main(["trace", "export", "abc", transcript, "--html", "--output", "/nowhere/at/all.html"]) == 2
    assert "/nowhere/at/all.html" in capsys.readouterr().err
