"""The files of an index in the hands of several processes."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from tests.kit.hosts import WAIT
from tests.unit.trace.tales import Tale, write_tales


def listed(folder: Path) -> str:
    """Return what another program prints of the calls."""
    command = [sys.executable, "-m", "roundtrip", "trace", "ls", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_another_program_leaves_the_files_of_an_open_index(tmp_path: Path) -> None:
    write_tales(tmp_path / "a.jsonl", Tale("aaa1").began(1, "ash").ended())
    index = CallIndex([tmp_path], index_path([tmp_path]))
    index.refresh()
    log = tmp_path / "index.sqlite3-wal"
    before = log.stat().st_ino
    assert "aaa1" in listed(tmp_path)
    # SQLite deletes it when the last program that has the index open closes it.
    assert log.stat().st_ino == before
    write_tales(tmp_path / "b.jsonl", Tale("bbb1").began(1, "ash").ended())
    index.refresh()
    assert index.count() == 2
    index.close()
    assert not log.exists()


def test_index_that_is_deleted_while_it_is_used_is_made_again(tmp_path: Path) -> None:
    write_tales(tmp_path / "a.jsonl", Tale("aaa1").began(1, "ash").ended())
    path = index_path([tmp_path])
    assert path is not None
    with closing(CallIndex([tmp_path], path)) as ui:
        ui.refresh()
        path.unlink()
        assert "aaa1" in listed(tmp_path)
        assert [row["call"] for row in ui.rows(CallFilter())] == ["aaa1"]
        write_tales(tmp_path / "b.jsonl", Tale("bbb1").began(2, "ash").ended())
        ui.refresh()
        assert sorted([row["call"] for row in ui.rows(CallFilter())]) == ["aaa1", "bbb1"]
        assert path.exists()
        assert "bbb1" in listed(tmp_path)
