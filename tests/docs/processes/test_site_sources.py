"""The site is made of the files of the repository, without those that Python writes beside them."""

from pathlib import Path

import pytest

from docs import site


def test_site_has_no_compiled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone, staged = tmp_path / "clone", tmp_path / "staged"
    files = ("README.md", "docs/README.md", "examples/shop.py", "examples/__pycache__/shop.cpython-311.pyc")
    for file in (*files, "examples/fleet/nginx.conf"):
        (clone / file).parent.mkdir(parents=True, exist_ok=True)
        (clone / file).write_text("")
    monkeypatch.setattr(site, "ROOT", clone)
    monkeypatch.setattr(site, "REFERENCE", {})
    site.stage(staged)
    copied = {path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file()}
    assert copied == {"index.md", "docs/README.md", "examples/shop.py", "examples/fleet/nginx.conf", "copy.js"}
