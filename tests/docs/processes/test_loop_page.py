"""The page of the first project runs from top to bottom in a fresh environment, with at most eight commands."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.processes.shell import Shell, on_a_free_port
from tests.kit.environments import Environment

PAGE: Final = ROOT / "docs" / "loop.md"
ANSWERS: Final = "2\nback\n"
RESULT: Final = "Booked 2 seats for Solaris in the back row."


def commands() -> list[str]:
    return [line for block in blocks(PAGE) if block.language == "bash" for line in block.text.splitlines()]


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
    port, text = on_a_free_port("\n".join(commands()[3:]))
    served = False
    for line in text.splitlines():
        if line.startswith("roundtrip call"):
            assert RESULT in shell.run_at_a_terminal(line, ANSWERS)
        elif line.startswith("roundtrip dev"):
            shell.open_playground(line)
        elif "roundtrip serve" in line:
            shell.serve(line, port)
            served = True
        else:
            said = shell.run(line)
            assert line != "pytest" or "1 snapshot passed" in said
    assert served


def test_files_of_the_page_are_those_of_a_project(shell: Shell) -> None:
    shell.run(until_green()[3])
    text = PAGE.read_text(encoding="utf-8")
    for path in shell.folder.rglob("*"):
        name = str(path.relative_to(shell.folder))
        if path.is_file() and not name.startswith((".venv/", "__snapshots__/")):
            assert f"`{name}`" in text
