"""The files of an index, and of its transcripts, in the hands of several programs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.cli import main
from roundtrip.trace.index import places
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.reading.calls import join
from roundtrip.trace.reading.pruning import prune
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.unit.trace.tales import Tale, question

SECONDS: Final = 60


def write(path: Path, *tales: Tale) -> None:
    path.write_text("".join(tale.write() for tale in tales), encoding="utf-8")


def rows_of(folder: Path) -> list[Row]:
    index = CallIndex([folder], index_path([folder]))
    index.refresh()
    rows = list(index.rows(CallFilter()))
    index.close()
    return rows


def read(folder: Path) -> list[Row]:
    """Return the rows as reading all lines gives them, in the form of the index."""
    calls = join(read_files(files_of([folder])).lines).calls
    rows: Any = json.loads(json.dumps([row_of(call) for call in calls.values()]))
    return sorted(rows, key=lambda row: row["call"])


def test_another_program_leaves_the_files_of_an_open_index(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", Tale("aaa1").began(1, "ash").ended())
    index = CallIndex([tmp_path], index_path([tmp_path]))
    index.refresh()
    log = tmp_path / "index.sqlite3-wal"
    before = log.stat().st_ino
    command = [sys.executable, "-m", "roundtrip", "trace", "ls", str(tmp_path)]
    assert b"aaa1" in subprocess.run(command, capture_output=True, timeout=SECONDS, check=True).stdout
    # SQLite deletes it when the last program that has the index open closes it.
    assert log.stat().st_ino == before
    write(tmp_path / "b.jsonl", Tale("bbb1").began(1, "ash").ended())
    index.refresh()
    assert index.count() == 2
    index.close()
    assert not log.exists()


def test_more_files_than_may_be_open_make_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MAX_OPEN", 3)
    for number in range(10):
        # Each call has lines in two files.
        tale = Tale(f"call{number}").began(1, "ash").asked(question("seat")).began(2, "birch").ended()
        lines = tale.write().splitlines(keepends=True)
        for file, some in ((number, lines[:2]), ((number + 5) % 10, lines[2:])):
            with (tmp_path / f"{file}.jsonl").open("a") as appended:
                appended.write("".join(some))
    found = sorted(rows_of(tmp_path), key=lambda row: row["call"])
    assert len(found) == 10
    assert found == read(tmp_path)


def test_lines_before_a_rotation_count_before_those_after_it(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    tale = Tale("aaa1", tool="book").began(1, "ash").asked(question("seat"))
    began, *others = tale.write().splitlines(keepends=True)
    write(file, Tale("old1").began(1, "ash").ended())
    assert len(rows_of(tmp_path)) == 1
    with file.open("a") as appended:
        appended.write(began)
    file.rename(tmp_path / "calls.jsonl.1")
    file.write_text("".join(others))
    found = sorted(rows_of(tmp_path), key=lambda row: row["call"])
    assert found == read(tmp_path)
    assert found[0]["tool"] == "book"


def test_name_with_a_lone_surrogate_is_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tale = Tale("aaa1", tool="book").began(1, "ash").ended()
    (tmp_path / "a.jsonl").write_text(tale.write().replace('"book"', r'"b\ud800k"').replace('"aaa1"', r'"a\ud800a"'))
    assert main(["trace", "ls", str(tmp_path)]) == 0
    without = capsys.readouterr().out
    assert main(["trace", "index", str(tmp_path)]) == 0
    assert "1 call," in capsys.readouterr().out
    assert main(["trace", "ls", str(tmp_path)]) == 0
    assert capsys.readouterr().out == without
    assert "b?k" in without


def test_prune_keeps_each_audit_log_and_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit, data, torn = tmp_path / "operators.jsonl", tmp_path / "data.jsonl", tmp_path / "torn.jsonl"
    acted = {"v": 1, "event": "acted", "at": 1.0, "instance": "ui", "call": "aaa1", "tool": "book"}
    acted |= {"action": "cancel", "by": "ana", "outcome": "done", "why": ""}
    audit.write_text(f"{json.dumps(acted)}\n")
    data.write_text('{"film": "Mirror"}\n')
    torn.write_text(f'ed","at":1}}\n{Tale("aaa1").began(1, "ash").write()}')
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    monkeypatch.setenv("ROUNDTRIP_AUDIT", str(empty))
    for path in (audit, data, torn, empty):
        at = time.time() - 90 * 86_400
        os.utime(path, (at, at))
    assert main(["trace", "prune", "--older-than", "30d", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(torn)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "empty.jsonl", "operators.jsonl"]


def test_prune_counts_no_file_that_a_server_writes_meanwhile(tmp_path: Path) -> None:
    old = time.time() - 90 * 86_400
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, Tale(f"{name[0] * 3}1").began(1, "ash").ended())
        os.utime(tmp_path / name, (old, old))

    def clock() -> float:
        os.utime(tmp_path / "a.jsonl")
        return time.time()

    pruned = prune([tmp_path], before=old + 1, max_bytes=None, clock=clock)
    assert (pruned.files, pruned.kept) == ([tmp_path / "b.jsonl"], (tmp_path / "a.jsonl").stat().st_size)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_link_to_a_transcript_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", Tale("aaa1").began(1, "ash").ended())
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
    assert len(files_of([tmp_path, tmp_path / "b.jsonl"])) == 1
    assert rows_of(tmp_path) == read(tmp_path)
