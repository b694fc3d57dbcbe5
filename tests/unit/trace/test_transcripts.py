"""The files that the name of a directory means."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from roundtrip.trace.index.positions import check_names, find_files
from roundtrip.trace.reading.following import Follower
from roundtrip.trace.reading.transcripts import NoTranscript, files_of, read_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of one transcript beside pipes and folders that are named like some."""
    (tmp_path / "calls.jsonl").write_text("{}\n")
    (tmp_path / "old.jsonl").mkdir()
    (tmp_path / "calls.jsonl.1").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "calls.jsonl.2")
    return tmp_path


def names(files: Iterable[Path]) -> list[str]:
    return [file.name for file in files]


def test_pipes_and_folders_are_no_transcripts(folder: Path) -> None:
    assert names(files_of([folder])) == ["calls.jsonl"]
    assert names(found.path for found in find_files([folder])) == ["calls.jsonl"]
    assert read_files(files_of([folder])).unreadable == 1
    following = Follower([folder])
    list(following.poll())
    assert following.open_files == 1
    following.close()


def test_folder_of_nothing_else_has_no_transcript(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(NoTranscript, match="has no transcripts"):
        files_of([tmp_path])


def test_index_takes_no_pipe_by_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(NoTranscript, match="an index needs regular files"):
        check_names([tmp_path / "pipe.jsonl"])
