"""Changes of Python files are found, and files that are not the project's are left out."""

import os
from pathlib import Path

import pytest

from roundtrip.serving.reloading import SourceFiles


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("shop.py", "shelves/books.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    return tmp_path


def test_change_is_reported_once(project: Path) -> None:
    files = SourceFiles([project])
    assert files.changes() == []
    (project / "shelves" / "books.py").write_text("longer")
    assert files.changes() == [project / "shelves" / "books.py"]
    assert files.changes() == []


def test_change_of_equal_size_is_found_by_its_time(project: Path) -> None:
    os.utime(project / "shop.py", (1000, 1000))
    files = SourceFiles([project])
    (project / "shop.py").write_text("new")
    os.utime(project / "shop.py", (2000, 2000))
    assert files.changes() == [project / "shop.py"]


def test_file_that_replaces_another_is_a_change(project: Path) -> None:
    """Editors write a new file, and rename it over the old one."""
    old = (project / "shop.py").stat()
    files = SourceFiles([project])
    (project / "new").write_text("new")
    os.utime(project / "new", ns=(old.st_atime_ns, old.st_mtime_ns))
    (project / "new").replace(project / "shop.py")
    assert files.changes() == [project / "shop.py"]


def test_new_and_removed_files_are_changes(project: Path) -> None:
    files = SourceFiles([project])
    (project / "shop.py").unlink()
    (project / "cellar").mkdir()
    (project / "cellar" / "wine.py").write_text("new")
    assert files.changes() == [project / "cellar" / "wine.py", project / "shop.py"]


IGNORED = [
    "notes.txt",
    "test_shop.py",
    "conftest.py",
    ".git/hook.py",
    "__pycache__/shop.py",
    "node_modules/gyp.py",
    "site-packages/mcp.py",
    "env/mcp.py",
]


def test_other_files_are_no_changes(project: Path) -> None:
    # A virtual environment, whatever its name.
    (project / "env").mkdir()
    (project / "env" / "pyvenv.cfg").touch()
    files = SourceFiles([project])
    for ignored in IGNORED:
        (project / ignored).parent.mkdir(exist_ok=True)
        (project / ignored).write_text("new")
    assert files.changes() == []


def test_folder_inside_another_is_looked_at_once(project: Path) -> None:
    files = SourceFiles([project / "shelves", project, project])
    (project / "shelves" / "books.py").write_text("longer")
    assert files.changes() == [project / "shelves" / "books.py"]


def test_folder_that_vanishes_is_a_change_and_no_failure(project: Path) -> None:
    files = SourceFiles([project / "shelves"])
    (project / "shelves" / "books.py").unlink()
    (project / "shelves").rmdir()
    assert files.changes() == [project / "shelves" / "books.py"]
