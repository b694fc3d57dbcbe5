"""`roundtrip new` makes a project that works at once, and overwrites nothing."""

import json
import tomllib
from collections.abc import Mapping
from importlib.metadata import PathDistribution, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from roundtrip.cli import main
from roundtrip.server.key_files import KeyFile
from tests.kit.tables import check_each


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["new", *arguments]) == 2
    out, told = capsys.readouterr()
    assert not out
    return told


def test_files_of_a_project_are_what_their_readers_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "late-show"]) == 0
    said = capsys.readouterr().out
    project = folder / "late-show"
    for path in files_in(project):
        assert f"  {Path('late-show') / path}\n" in said
    assert not any(b"{{" in text and b"${{" not in text for text in files_in(project).values())
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "late-show"
    assert settings["tool"]["setuptools"]["py-modules"] == ["late_show"]
    (needed,) = map(Requirement, settings["project"]["dependencies"])
    (tests,) = map(Requirement, settings["project"]["optional-dependencies"]["test"])
    assert (needed.name, tests.name, tests.extras) == ("mcp-roundtrip", "mcp-roundtrip", {"testing"})
    workflow: Mapping[str, Any] = yaml.safe_load((project / ".github" / "workflows" / "tests.yml").read_text())
    assert any(step.get("run") == "pytest" for step in workflow["jobs"]["tests"]["steps"])


def test_projects_in_new_folders_and_here_have_different_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.md").write_text("mine")
    assert main(["new", "one"]) == 0
    capsys.readouterr()
    assert main(["new", "cinema", "--here"]) == 0
    assert "cd " not in capsys.readouterr().out
    assert (folder / "cinema.py").is_file()
    assert (folder / "notes.md").read_text() == "mine"
    assert KeyFile.read(folder / "one" / "keys").signs.key != KeyFile.read(folder / "keys").signs.key
    (folder / "taken").write_text("mine")
    assert "'taken' is a file" in refused(capsys, "taken")


@pytest.mark.parametrize(("existing", "dangling"), [("keys", True), (".github/workflows/tests.yml", False)])
def test_existing_file_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str], existing: str, dangling: bool
) -> None:
    path = folder / "cinema" / existing
    path.parent.mkdir(parents=True)
    if dangling:
        path.symlink_to(folder / "elsewhere")
    else:
        path.write_text("mine")
    before = files_in(folder)
    assert f"cinema/{existing} exists, and nothing was written" in refused(capsys, "cinema")
    assert files_in(folder) == before
    assert not (folder / "elsewhere").exists()


def test_unusable_name_is_rejected(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(name: str, message: str) -> None:
        assert message in refused(capsys, name)
        assert not files_in(folder)

    check_each(
        [
            *(
                (name, "must consist of lowercase letters and digits")
                for name in ("", "Cinema", "1st", "a b", "../up", "a--b", "a.b")
            ),
            ("é", "must consist of lowercase letters and digits"),
            ("a" * 41, "at most 40 characters"),
            ("class", "must not be a Python keyword"),
            ("json", "must not be an installed module's name"),
            ("roundtrip", "must not be an installed module's name"),
            ("pytest", "must not be an installed module's name"),
            ("docstring-parser", "must not be an installed module's name"),
            ("test-cinema", "must not look like a test module"),
            ("conftest", "must not look like a test module"),
        ],
        check,
    )


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, f"mcp-roundtrip>={version('mcp-roundtrip')}"),
        ({"url": "file:///home/ada/roundtrip", "dir_info": {}}, "mcp-roundtrip @ file:///home/ada/roundtrip"),
        (
            {"url": "https://example.com/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "py"},
            "mcp-roundtrip @ git+https://example.com/r.git@abc#subdirectory=py",
        ),
    ],
)
def test_project_requires_the_package_from_where_it_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, requirement: str
) -> None:
    read = PathDistribution.read_text

    def read_text(self: PathDistribution, name: str) -> str | None:
        text = None if origin is None else json.dumps(origin)
        return text if name == "direct_url.json" else read(self, name)

    monkeypatch.setattr(PathDistribution, "read_text", read_text)
    assert main(["new", "cinema"]) == 0
    settings = tomllib.loads((folder / "cinema" / "pyproject.toml").read_text())
    assert settings["project"]["dependencies"] == [requirement]
