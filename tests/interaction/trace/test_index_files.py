"""The files of an index, and of its transcripts, in the hands of several programs."""

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from roundtrip.cli import main
from roundtrip.trace.explaining.wording import duration_text
from roundtrip.trace.index import places
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.reading.calls import join
from roundtrip.trace.reading.pruning import prune
from roundtrip.trace.reading.transcripts import files_of, read_files
from roundtrip.ui.fleet import fleet_data
from tests.unit.trace.tales import Tale, question, write_tales


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
    write_tales(file, Tale("old1").began(1, "ash").ended())
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
        write_tales(tmp_path / name, Tale(f"{name[0] * 3}1").began(1, "ash").ended())
        os.utime(tmp_path / name, (old, old))

    def clock() -> float:
        os.utime(tmp_path / "a.jsonl")
        return time.time()

    pruned = prune([tmp_path], before=old + 1, max_bytes=None, clock=clock)
    assert (pruned.files, pruned.kept) == ([tmp_path / "b.jsonl"], (tmp_path / "a.jsonl").stat().st_size)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_link_to_a_transcript_counts_once(tmp_path: Path) -> None:
    write_tales(tmp_path / "b.jsonl", Tale("aaa1").began(1, "ash").ended())
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
    assert len(files_of([tmp_path, tmp_path / "b.jsonl"])) == 1
    assert rows_of(tmp_path) == read(tmp_path)


# Several programs, and files that end early.


def names_of(found: CallIndex) -> list[str]:
    return [row["call"] for row in found.rows(CallFilter())]


def acted(call: str, at: float = 5.0) -> str:
    line = {"v": 1, "event": "acted", "at": at, "instance": "ui", "call": call, "tool": "book"}
    return json.dumps({**line, "action": "cancel", "by": "ana", "outcome": "done", "why": ""}) + "\n"


def test_programs_with_other_audit_logs_see_each_others_actions(tmp_path: Path) -> None:
    folder, audit = tmp_path / "traces", tmp_path / "elsewhere.jsonl"
    folder.mkdir()
    write_tales(folder / "a.jsonl", Tale("aaa1").began(1, "ash").asked(question("seat")))
    audit.write_text(acted("aaa1"))
    with closing(CallIndex([folder], index_path([folder]), later=[audit])) as ui:
        ui.refresh()
        # Another program, which names no audit log.
        assert [row["state"] for row in rows_of(folder)] == ["failed"]
        (row,) = ui.rows(CallFilter())
        assert row["state"] == "failed"
        audit.unlink()
        ui.refresh()
        assert [row["state"] for row in ui.rows(CallFilter())] == ["awaiting_input"]


@pytest.mark.parametrize("tail", ["", "{", '{"v":1,"event":"be', "}"])
def test_torn_last_line_is_left_out_with_and_without_an_index(tmp_path: Path, tail: str) -> None:
    whole = Tale("aaa1").began(1, "ash").ended().write().rstrip("\n")
    (tmp_path / "a.jsonl").write_text(f"{whole}\n{tail}" if tail else whole)
    reading = read_files([tmp_path / "a.jsonl"])
    with closing(CallIndex([tmp_path], index_path([tmp_path]))) as index:
        index.refresh()
        assert names_of(index) == list(join(reading.lines).calls) == ["aaa1"]
        assert index.unreadable() == (reading.unreadable, reading.newer) == (0, 0)
        (row,) = index.rows(CallFilter())
        assert row["state"] == "completed"
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write("\n" + Tale("bbb1").began(2, "ash").ended().write())
        index.refresh()
        assert sorted(names_of(index)) == ["aaa1", "bbb1"]
        assert index.unreadable()[0] == read_files([tmp_path / "a.jsonl"]).unreadable == (1 if tail else 0)


def test_long_line_that_is_being_written_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        read.append(len(found := pread(descriptor, size, offset)))
        return found

    monkeypatch.setattr(os, "pread", counted)
    path = tmp_path / "a.jsonl"
    path.write_text('{"v":1,"event":"began","x":"' + "x" * 3_000_000)
    with closing(CallIndex([tmp_path], index_path([tmp_path]))) as index:
        index.refresh()
        assert sum(read) > 3_000_000
        read.clear()
        for _ in range(3):
            index.refresh()
        assert not read
        with path.open("a") as file:
            file.write("y" * 1000)
        index.refresh()
        assert sum(read) < 10_000
        # The file is written again, and another program gives it the number of the one before.
        path.write_text(Tale("aaa1").began(1, "ash").ended().write())
        assert [row["call"] for row in rows_of(tmp_path)] == ["aaa1"]
        with path.open("a") as file:
            file.write(Tale("bbb1").began(1, "ash").ended().write())
        index.refresh()
        assert sorted(names_of(index)) == ["aaa1", "bbb1"]


def test_file_that_is_emptied_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_tales(path, Tale("aaa1").began(1, "ash").ended())
    index = CallIndex([tmp_path], index_path([tmp_path]))
    index.refresh()
    path.write_text("")
    index.refresh()
    assert list(index.rows(CallFilter())) == []
    index.close()


def test_index_of_another_version_is_made_again(tmp_path: Path) -> None:
    write_tales(tmp_path / "a.jsonl", Tale("aaa1").began(1, "ash").ended())
    rows_of(tmp_path)
    with closing(sqlite3.connect(tmp_path / "index.sqlite3")) as database:
        database.execute("CREATE TABLE later (number INTEGER PRIMARY KEY AUTOINCREMENT)")
        database.execute("INSERT INTO later VALUES (NULL)")
        database.execute("PRAGMA user_version = 999")
        database.commit()
    assert rows_of(tmp_path) == read(tmp_path)


def test_instance_was_last_heard_of_in_its_own_lines(tmp_path: Path) -> None:
    tale = Tale("aaa1").began(1, "ash").asked(question("seat")).began(2, "birch").asked(question("row"))
    first, last = (max(line.at for line in tale.lines if line.instance == name) for name in ("ash", "birch"))
    (tmp_path / "a.jsonl").write_text(tale.write() + acted("aaa1", last + 30))
    with closing(CallIndex([tmp_path], index_path([tmp_path]))) as index:
        index.refresh()
        (row,) = index.rows(CallFilter())
        assert row["last_at"] == last + 30
        instances = fleet_data(index, last + 50)["instances"]
    shown = {name: f"{duration_text((last + 50 - at) * 1000)} ago" for name, at in (("ash", first), ("birch", last))}
    assert {one["name"]: one["last"] for one in instances} == shown
