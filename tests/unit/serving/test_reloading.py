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


def test_each_change_is_reported_once(project: Path) -> None:
    shop, books = project / "shop.py", project / "shelves" / "books.py"
    os.utime(shop, (1000, 1000))
    # A folder inside another is looked at once.
    files = SourceFiles([project / "shelves", project, project])
    assert files.changes() == []
    books.write_text("longer")
    assert files.changes() == [books]
    assert files.changes() == []
    # Of equal size, with another time.
    shop.write_text("new")
    os.utime(shop, (2000, 2000))
    assert files.changes() == [shop]
    # Another file of equal size and time: editors write a new one, and rename it over the old one.
    (project / "replacing").write_text("new")
    os.utime(project / "replacing", (2000, 2000))
    (project / "replacing").replace(shop)
    assert files.changes() == [shop]
    shop.unlink()
    (project / "cellar").mkdir()
    (project / "cellar" / "wine.py").write_text("new")
    assert files.changes() == [project / "cellar" / "wine.py", shop]
    books.unlink()
    books.parent.rmdir()
    assert files.changes() == [books]


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
