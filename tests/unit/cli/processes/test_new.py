"""Projects of `roundtrip new` in a fresh environment, and under git."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

from roundtrip.cli import main
from roundtrip.server.key_files import KeyFile
from tests.kit.environments import SECONDS, Environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("venv"))


# `.ci/release` does the same on each Python.
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


def test_change_of_the_server_fails_the_tests_of_the_project(folder: Path, environment: Environment) -> None:
    assert main(["new", "matinee"]) == 0
    server = folder / "matinee" / "matinee.py"
    server.write_text(server.read_text().replace("Which row?", "Which row, please?"))
    ran = environment.run("pytest", "-q", "-p", "no:cacheprovider", "-k", "asks_for_seats", folder=folder / "matinee")
    assert ran.returncode == 1
    assert "1 snapshot failed" in ran.stdout


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
