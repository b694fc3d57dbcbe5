"""The tutorial runs from top to bottom in a fresh environment, and needs at most eight commands for a green test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.processes.shell import Shell
from tests.docs.processes.tutorial import PAGE, commands, run_commands
from tests.kit.environments import Environment


def until_green() -> list[str]:
    found = commands()
    return found[: found.index("pytest") + 1]


def test_at_most_eight_commands_lead_to_a_green_test() -> None:
    lines = until_green()
    assert len(lines) <= 8
    assert not any("&&" in line or ";" in line for line in lines)
    assert [line.split()[0] for line in lines] == ["python3", "source", "pip", "roundtrip", "roundtrip", "pytest"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Yield a shell in an empty folder, whose environment is made and activated as the first three commands do."""
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = Environment(folder / ".venv").python.parent
    for name, module in (("roundtrip", "roundtrip"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n')
        (programs / name).chmod(0o700)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ}
    variables = {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    shell = Shell(folder, variables, programs)
    yield shell
    shell.stop_services()


@pytest.mark.timeout(600)
def test_page_runs_from_top_to_bottom(shell: Shell) -> None:
    run_commands(shell, commands()[3:])


def test_page_names_each_file_of_a_project(shell: Shell) -> None:
    shell.run(until_green()[3])
    text = PAGE.read_text(encoding="utf-8")
    for path in shell.folder.rglob("*"):
        name = str(path.relative_to(shell.folder))
        if path.is_file() and not name.startswith((".venv/", "__snapshots__/")):
            assert f"`{name}`" in text
