"""Build the distributions of this checkout, or of a copy of what they are built from."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ROOT", "Built", "build", "copy_sources", "package_files"]

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", ".gitignore")
SECONDS: Final = 120


class Built(NamedTuple):
    """The files of one version."""

    sdist: Path
    wheel: Path


def package_files() -> set[str]:
    """Return the files of the package, from the root of the checkout."""
    files = (path for path in (ROOT / "roundtrip").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def copy_sources(folder: Path) -> None:
    """Copy what the distributions are built from, without the times of the files."""
    for name in (*SOURCES, *package_files()):
        copied = folder / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copied)


def build(tree: Path, folder: Path, *kinds: str) -> Built:
    """Build a source distribution, and a wheel from it; with kinds such as `--wheel` those from the tree."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *kinds, str(tree)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return Built(next(folder.glob("*.tar.gz"), folder), next(folder.glob("*.whl"), folder))
