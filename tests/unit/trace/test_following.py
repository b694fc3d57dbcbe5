"""Reading and following transcripts: no line is lost or told twice, and unreadable lines are counted."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roundtrip.trace.reading.following import Follower
from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files
from roundtrip.trace.writing.files import LineFile
from tests.kit.transcripts import began, write


@contextmanager
def following(*names: Path) -> Generator[Follower]:
    follower = Follower(names)
    try:
        yield follower
    finally:
        follower.close()


def calls_of(follower: Follower) -> list[str | None]:
    return [line.call for line in follower.poll()]


def text_of(call: str) -> str:
    return began(call=call).model_dump_json(exclude_unset=True)


def test_line_is_reported_once_complete(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    text = text_of("1")
    with following(path) as follower, path.open("w", encoding="utf-8") as file:
        file.write(text[:20])
        file.flush()
        assert calls_of(follower) == []
        file.write(text[20:])
        file.flush()
        assert calls_of(follower) == []
        file.write("\n")
        file.flush()
        assert calls_of(follower) == ["1"]


def test_followed_files_may_appear_later(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with following(tmp_path / "later.jsonl", folder) as follower:
        assert calls_of(follower) == []
        write(tmp_path / "later.jsonl", [text_of("1")])
        assert calls_of(follower) == ["1"]
        folder.mkdir()
        write(folder / "new.jsonl", [text_of("2")])
        write(folder / "no-transcript.txt", [text_of("3")])
        assert calls_of(follower) == ["2"]


def test_rotation_loses_nothing_however_often_it_happens_between_two_looks(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    size = len(text_of("00")) + 1
    file = LineFile(path, max_bytes=2 * size, keep=5)
    expected = [f"{number:02}" for number in range(10)]
    with following(path) as follower:
        for call in expected[:3]:
            file.append([text_of(call).encode() + b"\n"])
        assert calls_of(follower) == expected[:3]
        for call in expected[3:]:
            file.append([text_of(call).encode() + b"\n"])
        assert calls_of(follower) == expected[3:]
        assert calls_of(follower) == []
    file.close()
    assert len(list(tmp_path.iterdir())) == 5


def test_rotated_file_is_read_for_late_lines_and_let_go_of(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", [text_of("1")])
    with following(path) as follower, path.open("a", encoding="utf-8") as slow:
        assert calls_of(follower) == ["1"]
        path.rename(tmp_path / "calls.jsonl.1")
        write(path, [text_of("2")])
        assert calls_of(follower) == ["2"]
        slow.write(text_of("3") + "\n")
        slow.flush()
        assert calls_of(follower) == ["3"]
        for _ in range(200):
            calls_of(follower)
        assert follower.open_files == 1
        # A file that was emptied is read from its beginning.
        write(path, [text_of("4")])
        assert calls_of(follower) == ["4"]
        path.write_text("", encoding="utf-8")
        write(path, [text_of("5")])
        assert calls_of(follower) == ["5"]


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", ["{", '{"v":2}', text_of("1")])
    with following(path) as follower:
        assert calls_of(follower) == ["1"]
        assert (follower.reading.unreadable, follower.reading.newer) == (1, 1)
        assert follower.reading.lines == []


def test_invalid_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    text = began().model_dump_json(exclude_unset=True)
    surrogate = began(arguments={"value": "HERE"}).model_dump_json(exclude_unset=True).replace("HERE", "\\ud800")
    times = [text.replace('"at":1795000000.0', f'"at":{at}') for at in ("NaN", "Infinity", "1e999")]
    assert text not in times
    lines = ["", "{", "[]", "3", "[" * 100_000, '{"v":1}', *times, '{"v":2,"event":"x"}', surrogate]
    path = write(tmp_path / "calls.jsonl", lines)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    reading = read_files([write(path, [began()])])
    assert (len(reading.lines), reading.unreadable, reading.newer) == (2, 9, 1)


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    for name in ("calls.jsonl", "calls.jsonl.1", "calls.jsonl.2", "calls.jsonl.10", "calls.jsonl.bak", "other.jsonl"):
        write(tmp_path / name, [began()])
    names = [path.name for path in files_of([tmp_path / "calls.jsonl"])]
    assert names == ["calls.jsonl.10", "calls.jsonl.2", "calls.jsonl.1", "calls.jsonl"]
    assert [path.name for path in files_of([tmp_path])] == [*names, "other.jsonl"]


def test_names_without_transcripts_are_rejected_with_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(NoTranscript, match=r"has no transcripts \(\*\.jsonl\)"):
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
