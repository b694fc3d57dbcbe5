"""`roundtrip trace index` and `prune`: the same output, found at once, and files in the hands of several programs."""

import json
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from roundtrip.cli import main
from roundtrip.cli.trace import calls
from roundtrip.machine.table import State
from roundtrip.trace.explaining.wording import duration_text
from roundtrip.trace.index import positions
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.index.rows import Row, row_of
from roundtrip.trace.reading import thinning
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.pruning import prune
from roundtrip.trace.reading.transcripts import files_of, read_files
from roundtrip.trace.writing.files import LineFile
from roundtrip.ui.fleet import fleet_data
from roundtrip.ui.lists import Lists
from tests.kit.tables import check_each
from tests.unit.trace.tales import HOSTILE, Tale, question, write_tales

_HOUR = 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with the transcripts of two instances, and some lines that are none."""
    folder = tmp_path / "traces"
    folder.mkdir()
    hidden = {"digest": "x", "bytes": 64}
    tales = [
        Tale("aaa1", tool="order").began(1, "ash").asked(question("seat")).began(2, "birch").ended(),
        Tale("aaa2", tool="pay*").began(1, "birch").asked(question("card")),
        Tale("bbb1", tool=HOSTILE).began(1, "ash").ended("failed", error={"type": "Oops", "text": hidden}),
        Tale("ccc1", tool="order").began(1, "ash").asked(question("seat")).rejected("expired", "birch"),
    ]
    tales[1].began(2, "ash").asked(question("card", "reworded"))
    stray = Tale("ddd1").began(1, "ash").rejected("tampered", "ash", call=None, leg=None)
    for tale in [*tales, stray]:
        for line in tale.lines:
            with (folder / f"{line.instance}.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{line.model_dump_json(exclude_unset=True)}\n")
    with (folder / "ash.jsonl").open("a") as file:
        file.write("nonsense\n")
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of a command and its outputs."""
    code = main(["trace", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


VIEWS: Sequence[Sequence[str]] = [
    ("ls",),
    ("ls", "--json"),
    ("ls", "--newest", "--limit", "2"),
    ("ls", "--tool", "order", "--tool", "pay[*]"),
    ("ls", "--tool", "*"),
    ("ls", "--state", "failed"),
    ("ls", "--reason", "reworded", "--state", "awaiting_input"),
    ("ls", "--failure", "Oops"),
    ("ls", "--instance", "birch", "--rounds", ">1"),
    ("ls", "--build", "b*", "--rounds", "0"),
    ("ls", "--state", "declined"),
    ("ls", "--rejections"),
    ("ls", "--rejections", "--reason", "expired"),
    ("show", "aaa1"),
    ("show", "bbb"),
    ("show", "last"),
    ("explain", "aaa2"),
    ("diff", "aaa1", "aaa2"),
    ("export", "aaa1", "--mermaid"),
]


def test_views_print_the_same_with_an_index(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Tale("eee1", tool="book").began(1, "cedar").ended().write()
    # A name may have half a character.
    (folder / "cedar.jsonl").write_text(odd.replace('"book"', r'"b\ud800k"').replace('"eee1"', r'"e\ud800e"'))
    without = [printed(capsys, *view, str(folder)) for view in VIEWS]
    code, out, err = printed(capsys, "index", str(folder))
    assert (code, out) == (0, f"{folder / 'index.sqlite3'}: 6 calls, 18 new lines\n")
    assert "b?k" in without[0][1]
    assert "1 line is skipped: not part of a transcript" in err
    # Lines are read at their places alone.
    monkeypatch.setattr(calls, "load_files", pytest.fail)
    assert [printed(capsys, *view, str(folder)) for view in VIEWS] == without


def test_names_that_fit_no_call_get_the_same_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    views = [("show", "aaa"), ("show", "zzz"), ("show", "")]
    without = [printed(capsys, *view, str(folder)) for view in views]
    assert [code for code, _, _ in without] == [2, 2, 2]
    printed(capsys, "index", str(folder))
    for view, (code, out, err) in zip(views, without, strict=True):
        again = printed(capsys, *view, str(folder))
        assert again[:2] == (code, out)
        assert sorted(again[2].split()) == sorted(err.split()) or view[1] == ""


def test_a_view_takes_what_was_appended_since(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "index", str(folder))
    (folder / "cedar.jsonl").write_text(Tale("eee1").began(1, "cedar").write())
    code, out, _ = printed(capsys, "ls", "--instance", "cedar", "--json", str(folder))
    assert (code, [row["call"] for row in json.loads(out)]) == (0, ["eee1"])


def test_index_of_a_single_file_lies_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "birch.jsonl"
    assert printed(capsys, "index", str(file))[0] == 0
    index = folder / "birch.jsonl.index.sqlite3"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert printed(capsys, "ls", str(file))[0] == 0
    code, _, err = printed(capsys, "index", str(file), str(folder))
    assert code == 2
    assert "covers one file or directory" in err


def test_index_has_no_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "s3cret-value"
    tale = Tale("fff1").began(1, "ash", arguments={"value": {"card": secret}})
    tale.asked(question("card", message={"value": secret}, form={"value": {"title": secret}}))
    tale.began(2, "ash").ended("failed", error={"type": "Oops", "text": {"value": secret}}, result={"value": secret})
    (folder / "ash.jsonl").write_text(tale.write())
    printed(capsys, "index", str(folder))
    assert not any(secret.encode() in path.read_bytes() for path in folder.glob("index.sqlite3*"))


def test_foreign_file_in_its_place_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "index.sqlite3"
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE mine (a)")
    foreign.commit()
    foreign.close()
    code, _, err = printed(capsys, "index", str(folder))
    assert (code, "is not a transcript index; rename or move it" in err) == (2, True)
    # Views read all lines then.
    code, out, err = printed(capsys, "ls", str(folder))
    assert (code, "aaa1" in out, "reading all lines instead" in err) == (0, True, True)
    path.write_bytes(b"no database" * 1000)
    assert printed(capsys, "index", str(folder))[0] == 2
    assert printed(capsys, "ls", str(folder))[0] == 0


def test_old_transcripts_are_pruned_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, "index", str(folder))
    others = {"data.jsonl": '{"film": "Mirror"}\n', "operators.jsonl": "", "people.jsonl": acted("ccc1")}
    for name, text in others.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("ROUNDTRIP_OPERATOR_LOG", str(folder / "operators.jsonl"))
    (folder / "ash.jsonl.1").write_text('ed","at":1}\n' + (folder / "ash.jsonl").read_text())
    (folder / "ash.jsonl").write_text(Tale("new1").began(1, "ash").write())
    for name, age in (("ash.jsonl.1", 40), ("birch.jsonl", 10), *((name, 100) for name in others)):
        at = time.time() - age * 24 * _HOUR
        os.utime(folder / name, (at, at))
    code, out, _ = printed(capsys, "prune", "--older-than", "30d", "--dry-run", str(folder))
    assert (code, out.splitlines()[0]) == (0, str(folder / "ash.jsonl.1"))
    assert (folder / "ash.jsonl.1").exists()
    assert "1 file of " in printed(capsys, "prune", "--older-than", "30d", str(folder))[1]
    assert not (folder / "ash.jsonl.1").exists()
    assert {row["call"] for row in rows_of(folder)} == {"aaa1", "aaa2", "ccc1", "new1"}
    code, _, err = printed(capsys, "prune", "--max-size", "10", str(folder))
    assert code == 1
    assert "files written in the last hour, and files that are not transcripts" in err
    assert sorted(path.name for path in folder.glob("*.jsonl*")) == ["ash.jsonl", *others]


def test_prune_needs_a_bound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: Sequence[str], part: str) -> None:
        try:
            code = main(["trace", "prune", *arguments, str(folder)])
        except SystemExit as error:
            code = error.code
        assert code == 2
        assert part in capsys.readouterr().err

    check_each(
        [
            ([], "no option selects files to delete"),
            (["--max-size", "many"], "must be a size such as 500M or 20G, got 'many'"),
            (["--older-than", "ever"], "is not a time"),
        ],
        check,
    )


def test_idle_recorder_leaves_a_deleted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(tmp_path / "calls.jsonl", max_bytes=0, keep=0)
    file.append([b"one\n"])
    (tmp_path / "calls.jsonl").unlink()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    file.append([b"two\n"])
    assert (tmp_path / "calls.jsonl").read_bytes() == b"two\n"
    file.close()


def test_name_that_is_a_pattern_finds_itself(tmp_path: Path) -> None:
    for number, tool in enumerate(("*", "book", "bo*", "[b]")):
        (tmp_path / f"{number}.jsonl").write_text(Tale(f"call{number}", tool=tool).began(1, "ash").ended().write())
    with indexed(tmp_path) as index:
        found = {tool: [row["tool"] for row in index.rows(CallFilter({"tool": [tool]}))] for tool in ("*", "bo*", "b*")}
    assert {tool: sorted(names) for tool, names in found.items()} == {"*": ["*"], "bo*": ["bo*"], "b*": ["bo*", "book"]}


@contextmanager
def indexed(folder: Path) -> Generator[CallIndex]:
    """Return an index of all lines, and close it afterwards."""
    with closing(CallIndex([folder], index_path([folder]))) as index:
        index.refresh()
        yield index


def rows_of(folder: Path) -> list[Row]:
    with indexed(folder) as index:
        return list(index.rows(CallFilter()))


def read(folder: Path) -> list[Row]:
    """Return the rows as reading all lines gives them, in the form of the index."""
    calls = join(read_files(files_of([folder])).lines).calls
    rows: Any = json.loads(json.dumps([row_of(call) for call in calls.values()]))
    return sorted(rows, key=lambda row: row["call"])


def test_calls_across_many_files_make_one_index(tmp_path: Path) -> None:
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


def test_programs_with_other_operator_logs_see_each_others_actions(tmp_path: Path) -> None:
    folder, operator_log = tmp_path / "traces", tmp_path / "elsewhere.jsonl"
    folder.mkdir()
    write_tales(folder / "a.jsonl", Tale("aaa1").began(1, "ash").asked(question("seat")))
    operator_log.write_text(acted("aaa1"))
    with closing(CallIndex([folder], index_path([folder]), later=[operator_log])) as ui:
        ui.refresh()
        # Another program, which names no operator log.
        assert [row["state"] for row in rows_of(folder)] == ["failed"]
        (row,) = ui.rows(CallFilter())
        assert row["state"] == "failed"
        operator_log.unlink()
        ui.refresh()
        assert [row["state"] for row in ui.rows(CallFilter())] == ["awaiting_input"]


@pytest.mark.parametrize("tail", ["", "{", '{"v":1,"event":"be', "}"])
def test_torn_last_line_is_left_out_with_and_without_an_index(tmp_path: Path, tail: str) -> None:
    whole = Tale("aaa1").began(1, "ash").ended().write().rstrip("\n")
    (tmp_path / "a.jsonl").write_text(f"{whole}\n{tail}" if tail else whole)
    reading = read_files([tmp_path / "a.jsonl"])
    with indexed(tmp_path) as index:
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
    with indexed(tmp_path) as index:
        assert sum(read) > 3_000_000
        read.clear()
        for _ in range(3):
            index.refresh()
        assert not read
        with path.open("a") as file:
            file.write("y" * 1000)
        index.refresh()
        assert sum(read) < 10_000


@pytest.mark.parametrize("number", [110, 450])
def test_further_request_of_a_long_call_costs_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    tale = Tale("aaa1").began(1, "ash").asked(question("seat"))
    for _ in range(number):
        tale.began(2, "ash").asked(question("row"), round=2).rejected("expired", "birch", leg=2)
    write_tales(path := tmp_path / "a.jsonl", tale.began(3, "ash").ended())
    write_tales(other := tmp_path / "b.jsonl", tale)
    whole, used, parse = read(path), list[Any](), positions.parse_line

    monkeypatch.setattr(positions, "parse_line", lambda *line: used.append(line) or parse(*line))  # pyright: ignore
    monkeypatch.setattr(thinning, "MAX_REQUESTS", 60)
    path.write_text(tale.write().rstrip().rpartition("\n")[0] + "\n")
    with indexed(path) as index:
        seen = index.find("aaa1")
        assert seen is not None
        assert [serving.leg for serving in seen.servings] == [1, *[2] * 17, 3]
        write_tales(path, tale)
        for work, cost in ((index.refresh, 53), (lambda: Lists(index).rejected({}), 155)):
            used.clear()
            work()
            assert len(used) == cost
        assert list(index.rows(CallFilter())) == whole
    for view in (["show"], ["explain"], ["export", "--html"]):
        shown, without = (printed(capsys, *view, "aaa1", str(file)) for file in (path, other))
        assert shown == without
        assert (
            f"35 of {2 * number + 2} requests are shown: the first and last 8 of each set of equal requests" in shown[1]
        )


def test_end_of_a_call_is_kept_among_many_different_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tale = Tale("aaa1").began(1, "ash").asked(question("seat"))
    for number in range(200):
        if number == 100:
            tale.began(2, "ash").ended()
        tale.began(1, f"other{number}").asked(question("seat"))
    write_tales(path := tmp_path / "a.jsonl", tale)
    whole = read(path)
    monkeypatch.setattr(thinning, "MAX_REQUESTS", 60)
    with indexed(path) as index:
        found = index.find("aaa1")
        assert found is not None
        assert (found.state, len(found.servings), found.request_count) == (State.COMPLETED, 60, 202)
        assert [row["state"] for row in index.rows(CallFilter())] == [row["state"] for row in whole]


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
    with indexed(tmp_path) as index:
        (row,) = index.rows(CallFilter())
        assert row["last_at"] == last + 30
        instances = fleet_data(index, last + 50)["instances"]
    shown = {name: f"{duration_text((last + 50 - at) * 1000)} ago" for name, at in (("ash", first), ("birch", last))}
    assert {one["name"]: one["last"] for one in instances} == shown
