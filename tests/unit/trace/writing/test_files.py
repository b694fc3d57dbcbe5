"""Files of lines: whole lines from many processes, rotation, and disks that are full."""

import gc
import logging
import os
import stat
from pathlib import Path

import anyio
import pytest

from roundtrip import Recorder, Server
from roundtrip.testing import User
from roundtrip.trace.writing.files import LineFile
from tests.kit.tables import check_each
from tests.kit.waiting import until_plain

SOME = 1 << 20


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_new_files_are_private_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    new, old = tmp_path / "deep" / "er" / "calls.jsonl", tmp_path / "calls.jsonl"
    old.write_bytes(b"before\n")
    old.chmod(0o640)
    for path in (new, old):
        LineFile(path, max_bytes=SOME, keep=1).append([b"after\n"])
    assert (new.read_bytes(), stat.S_IMODE(new.stat().st_mode)) == (b"after\n", 0o600)
    assert (old.read_bytes(), stat.S_IMODE(old.stat().st_mode)) == (b"before\nafter\n", 0o640)


def test_full_files_are_numbered_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = LineFile(path, max_bytes=100, keep=2)
    for number in range(40):
        file.append([b"%09d\n" % number])
    kept = [lines_of(path.with_name(name)) for name in ("calls.jsonl.2", "calls.jsonl.1", "calls.jsonl")]
    numbers = [int(line) for lines in kept for line in lines]
    assert numbers == list(range(numbers[0], 40))
    assert len(numbers) <= 30
    assert all(sum(map(len, lines)) <= 100 for lines in kept)
    assert sorted(other.name for other in tmp_path.iterdir()) == ["calls.jsonl", "calls.jsonl.1", "calls.jsonl.2"]


def test_full_file_without_backups_is_restarted_and_unbounded_kept(tmp_path: Path) -> None:
    restarted, unbounded = tmp_path / "restarted.jsonl", tmp_path / "unbounded.jsonl"
    for path, max_bytes, keep in ((restarted, 25, 0), (unbounded, 0, 3)):
        file = LineFile(path, max_bytes=max_bytes, keep=keep)
        for number in range(5):
            file.append([b"%09d\n" % number])
    assert [int(line) for line in lines_of(restarted)] == [4]
    assert [int(line) for line in lines_of(unbounded)] == [*range(5)]
    assert sorted(tmp_path.iterdir()) == [restarted, unbounded]


def test_oversized_line_gets_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = LineFile(path, max_bytes=10, keep=3)
    for line in (b"a\n", b"b" * 50 + b"\n", b"c\n"):
        file.append([line])
    assert lines_of(path) == [b"c\n"]
    assert lines_of(path.with_name("calls.jsonl.1")) == [b"b" * 50 + b"\n"]


def test_special_file_is_written_and_never_rotated(tmp_path: Path) -> None:
    read, write = os.pipe()
    file = LineFile(Path(f"/dev/fd/{write}"), max_bytes=4, keep=1)
    file.append([b"one\n"])
    file.append([b"two\n"])
    assert os.read(read, 100) == b"one\ntwo\n"
    os.close(read)
    os.close(write)


def test_place_that_takes_no_line_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "unread")

    def check(path: str) -> None:
        caplog.clear()
        file = LineFile(Recorder(path).path, max_bytes=SOME, keep=1)
        for _ in range(3):
            file.append([b"lost\n"])
        (record,) = caplog.records
        assert "cannot write the transcript" in record.getMessage()

    full = [name for name in ("/dev/full",) if Path(name).exists()]
    with caplog.at_level(logging.WARNING, logger="roundtrip"):
        check_each([*full, str(tmp_path / "unread"), "nul\0.jsonl", "x" * 5000], check)


def test_unwritable_place_warns_once_per_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder is needed")
    file = LineFile(blocked / "calls.jsonl", max_bytes=SOME, keep=1)
    with caplog.at_level(logging.WARNING, logger="roundtrip"):
        file.append([b"lost\n"])
        file.append([b"lost\n"])
        blocked.unlink()
        file.append([b"kept\n"])
        file.append([b"kept\n"])
    rejected, mended = [record.getMessage() for record in caplog.records]
    assert "cannot write the transcript" in rejected
    assert mended.endswith("can be written again, but lines are missing")
    assert (blocked / "calls.jsonl").read_bytes() == b"kept\nkept\n"


def test_half_a_line_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"whole\nkil")
    file = LineFile(path, max_bytes=SOME, keep=1)
    true_write = os.write

    def write_four_bytes(fd: int, data: bytes) -> int:
        return true_write(fd, data[:4])

    monkeypatch.setattr(os, "write", write_four_bytes)
    file.append([b"first\n"])
    monkeypatch.setattr(os, "write", true_write)
    file.append([b"second\n"])
    assert path.read_bytes() == b"whole\nkil\nfir\nsecond\n"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no list of open files")
def test_recorder_that_is_gone_keeps_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server("shop", trace=path, mask_error_details=True)

    @server.tool()
    def order() -> str:
        return "ordered"

    assert anyio.run(User(server).call, "order")
    assert path.read_bytes()

    def is_open() -> bool:
        return any(Path(f"/proc/self/fd/{name}").resolve() == path for name in os.listdir("/proc/self/fd"))

    def is_closed() -> bool:
        gc.collect()
        return not is_open()

    assert is_open()
    del server, order
    # The thread of the plain function drops its work a moment after the loop has the result.
    until_plain(is_closed)
