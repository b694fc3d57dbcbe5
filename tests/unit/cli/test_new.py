"""`roundtrip new` makes a project that works at once, and overwrites nothing."""

import json
import os
import stat
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from importlib.metadata import PathDistribution, version
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement

from roundtrip.cli import main
from roundtrip.server.key_files import KeyFile

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS: Final = 110


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["new", *arguments]) == 2
    out, told = capsys.readouterr()
    assert not out
    return told


class Environment:
    """A fresh virtual environment that sees the packages of this one, and has this checkout installed."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"
        # Without pip: it takes seconds, and a file of paths does what it would do.
        venv.create(folder, with_pip=False)
        (site,) = folder.glob("lib/python*/site-packages")
        installed = [path for path in sys.path if path.endswith("site-packages")]
        lines = [f"import site; site.addsitedir({path!r})" for path in installed]
        (site / "checkout.pth").write_text("\n".join([*lines, str(ROOT)]) + "\n")

    def run(self, *words: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "LC_ALL")}
        return subprocess.run(
            [str(self.python), "-m", *words],
            cwd=folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("venv"))


# `.ci/release` does the same on each Python.
@pytest.mark.nightly
def test_new_project_passes_its_tests_and_answers_in_a_fresh_environment(
    folder: Path, environment: Environment
) -> None:
    made = environment.run("roundtrip", "new", "late-show", folder=folder)
    assert made.returncode == 0, made.stderr
    project = folder / "late-show"
    # As CI runs them: a snapshot that is missing fails, and is not written.
    ran = environment.run("pytest", "-q", "-p", "no:cacheprovider", folder=project, CI="true")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 snapshot passed" in ran.stdout
    assert "skipped" not in ran.stdout
    (project / "answers.json").write_text(json.dumps({"seats": {"value": 4}, "row": {"value": "front"}}))
    call = ["call", "late_show.py", "book", "film=Mirror", "--answers", "answers.json"]
    called = environment.run("roundtrip", *call, folder=project, ROUNDTRIP_KEY_FILE="keys")
    assert (called.returncode, called.stdout) == (0, "Booked 4 seats for Mirror in the front row.\n"), called.stderr


@pytest.mark.nightly
def test_change_of_the_server_fails_the_tests_of_the_project(folder: Path, environment: Environment) -> None:
    assert main(["new", "matinee"]) == 0
    server = folder / "matinee" / "matinee.py"
    server.write_text(server.read_text().replace("Which row?", "Which row, please?"))
    ran = environment.run("pytest", "-q", "-p", "no:cacheprovider", "-k", "asks_for_seats", folder=folder / "matinee")
    assert ran.returncode == 1
    assert "1 snapshot failed" in ran.stdout


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


def test_key_is_readable_by_its_owner_alone_and_ignored_by_git(folder: Path) -> None:
    assert main(["new", "cinema"]) == 0
    key = folder / "cinema" / "keys"
    assert KeyFile.read(key).signs.key
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    subprocess.run(["git", "init", "-q"], cwd=folder / "cinema", check=True, timeout=SECONDS)
    git = ["git", "status", "--porcelain", "--untracked-files=all"]
    listed = subprocess.run(git, cwd=folder / "cinema", check=True, capture_output=True, text=True, timeout=SECONDS)
    assert "?? cinema.py\n" in listed.stdout
    assert "?? .github/workflows/tests.yml\n" in listed.stdout
    assert "keys" not in listed.stdout


def test_two_projects_have_different_keys(folder: Path) -> None:
    assert main(["new", "one"]) == main(["new", "two"]) == 0
    assert KeyFile.read(folder / "one" / "keys").signs.key != KeyFile.read(folder / "two" / "keys").signs.key


def test_project_is_made_in_this_folder_on_demand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.md").write_text("mine")
    assert main(["new", "cinema", "--here"]) == 0
    assert (folder / "cinema.py").is_file()
    assert (folder / "notes.md").read_text() == "mine"
    assert "cd " not in capsys.readouterr().out


@pytest.mark.parametrize("existing", ["README.md", "keys", ".github/workflows/tests.yml"])
@pytest.mark.parametrize("dangling", [False, True])
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


def test_second_project_of_a_name_lists_what_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "cinema"]) == 0
    before = files_in(folder)
    assert "cinema/cinema.py, cinema/test_cinema.py" in refused(capsys, "cinema")
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (name, "must have small letters and digits")
            for name in ("", "Cinema", "1st", "a b", "../up", "a--b", "a.b")
        ),
        ("é", "must have small letters and digits"),
        ("a" * 41, "at most 40 characters"),
        ("class", "must not be a word of Python's own"),
        ("json", "must not be that of an installed module"),
        ("roundtrip", "must not be that of an installed module"),
        ("pytest", "must not be that of an installed module"),
        ("docstring-parser", "must not be that of an installed module"),
        ("test-cinema", "must not be that of a test"),
        ("conftest", "must not be that of a test"),
    ],
)
def test_unusable_name_is_rejected(folder: Path, capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
    assert message in refused(capsys, name)
    assert not files_in(folder)


def test_file_in_place_of_the_folder_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cinema").write_text("mine")
    assert "'cinema' is a file" in refused(capsys, "cinema")


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
