"""Reading transcripts: unreadable lines are counted, and never end the reading."""

import gc
from pathlib import Path

import pytest

from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files
from tests.kit.transcripts import began, write


def test_invalid_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    deep = "[" * 100_000
    lines = ["", "{", "[]", "3", deep, '{"v":1}', '{"v":1,"event":"began","at":NaN}', '{"v":2,"event":"x"}', began()]
    reading = read_files([write(tmp_path / "calls.jsonl", lines)])
    assert (len(reading.lines), reading.unreadable, reading.newer) == (1, 6, 1)


def test_a_line_with_a_lone_surrogate_is_read(tmp_path: Path) -> None:
    text = began(arguments={"value": "HERE"}).model_dump_json(exclude_unset=True).replace("HERE", "\\ud800")
    reading = read_files([write(tmp_path / "calls.jsonl", [text])])
    assert (len(reading.lines), reading.unreadable) == (1, 0)


def test_times_that_are_no_numbers_are_rejected_with_their_line(tmp_path: Path) -> None:
    text = began().model_dump_json(exclude_unset=True)
    lines = [text.replace('"at":1795000000.0', f'"at":{at}') for at in ("NaN", "Infinity", "1e999")]
    assert text not in lines
    assert read_files([write(tmp_path / "calls.jsonl", lines)]).unreadable == 3


def test_bytes_that_are_no_text_spoil_their_line_only(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", [began()])
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    write(path, [began(1, call="call-2")])
    reading = read_files([path])
    assert (len(reading.lines), reading.unreadable) == (2, 1)


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    for name in ("calls.jsonl", "calls.jsonl.1", "calls.jsonl.2", "calls.jsonl.10", "calls.jsonl.bak", "other.jsonl"):
        write(tmp_path / name, [began()])
    names = [path.name for path in files_of([tmp_path / "calls.jsonl"])]
    assert names == ["calls.jsonl.10", "calls.jsonl.2", "calls.jsonl.1", "calls.jsonl"]
    assert [path.name for path in files_of([tmp_path])] == [*names, "other.jsonl"]


def test_names_without_transcripts_are_rejected_with_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(NoTranscript, match=r"holds no transcript \(\*\.jsonl\)"):
        files_of([tmp_path])
    with pytest.raises(NoTranscript, match="record with Server"):
        files_of([tmp_path / "calls.jsonl"])


def test_the_collector_is_left_as_it_was_found(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", [began()])
    assert gc.isenabled()
    read_files([path])
    assert gc.isenabled()
    with pytest.raises(NoTranscript, match="cannot read"):
        read_files([tmp_path])
    assert gc.isenabled()
