"""`roundtrip trace index` and `prune`: the same output, found at once, and old files deleted."""

import json
import os
import sqlite3
import stat
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from roundtrip.cli import main
from roundtrip.cli.trace import calls
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.writing.files import LineFile
from tests.kit.tables import check_each
from tests.unit.trace.tales import HOSTILE, Tale, question

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
    without = [printed(capsys, *view, str(folder)) for view in VIEWS]
    code, out, err = printed(capsys, "index", str(folder))
    assert (code, out) == (0, f"{folder / 'index.sqlite3'}: 5 calls, 16 new lines\n")
    assert "1 line is not a transcript's" in err
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
    assert "belongs to one file or directory" in err


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
    assert (code, "is not an index of transcripts; move it away" in err) == (2, True)
    # Views read all lines then.
    code, out, err = printed(capsys, "ls", str(folder))
    assert (code, "aaa1" in out, "all lines are read instead" in err) == (0, True, True)
    path.write_bytes(b"no database" * 1000)
    assert printed(capsys, "index", str(folder))[0] == 2
    assert printed(capsys, "ls", str(folder))[0] == 0


def test_old_files_are_pruned_and_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "index", str(folder))
    (folder / "audit.jsonl").write_text("")
    (folder / "ash.jsonl").replace(folder / "ash.jsonl.1")
    (folder / "ash.jsonl").write_text(Tale("new1").began(1, "ash").write())
    for name, age in (("ash.jsonl.1", 40), ("birch.jsonl", 10), ("audit.jsonl", 100)):
        at = time.time() - age * 24 * _HOUR
        os.utime(folder / name, (at, at))
    code, out, _ = printed(capsys, "prune", "--older-than", "30d", "--dry-run", str(folder))
    assert (code, out.splitlines()[0]) == (0, str(folder / "ash.jsonl.1"))
    assert (folder / "ash.jsonl.1").exists()
    assert "1 file of " in printed(capsys, "prune", "--older-than", "30d", str(folder))[1]
    assert not (folder / "ash.jsonl.1").exists()
    index = CallIndex([folder], index_path([folder]))
    assert {row["call"] for row in index.rows(CallFilter())} == {"aaa1", "aaa2", "ccc1", "new1"}
    index.close()
    code, _, err = printed(capsys, "prune", "--max-size", "10", str(folder))
    assert code == 1
    assert "files written in the last hour, and what is no transcript are kept" in err
    assert sorted(path.name for path in folder.glob("*.jsonl*")) == ["ash.jsonl", "audit.jsonl"]


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
            ([], "name what to delete"),
            (["--max-size", "many"], "is not a size; write 500M or 20G"),
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
    with closing(CallIndex([tmp_path], index_path([tmp_path]))) as index:
        index.refresh()
        found = {tool: [row["tool"] for row in index.rows(CallFilter({"tool": [tool]}))] for tool in ("*", "bo*", "b*")}
    assert {tool: sorted(names) for tool, names in found.items()} == {"*": ["*"], "bo*": ["bo*"], "b*": ["bo*", "book"]}
