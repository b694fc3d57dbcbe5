"""Test that readers can paste shell blocks: those of README, tutorial and trace page run in order, in an empty folder.

The modules of all extras are hidden, as after a plain `pip install -e .`.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli import main
from tests.docs.pages import ROOT, blocks, name_of, pages, python_blocks
from tests.docs.processes import tutorial
from tests.docs.processes.shell import SECONDS, Shell, lines_of, shell_blocks
from tests.kit.forks import commands_with
from tests.package.installed import installed_by

pytestmark = pytest.mark.timeout(600)

README: Final = ROOT / "README.md"
TRACE: Final = ROOT / "docs" / "trace.md"
AUDIT: Final = ROOT / "docs" / "security.md"
HIDING: Final = """\
import sys
sys.modules.update(dict.fromkeys({hidden!r}))
"""


def hidden_modules() -> list[str]:
    plain = installed_by("mcp-roundtrip", set())
    return sorted(
        module
        for module, distributions in packages_distributions().items()
        if not any(one.lower().replace("_", "-") in plain for one in distributions)
        # Where it is installed to be edited, and what every interpreter has.
        and not module.startswith("_")
        and module not in {"pip", "setuptools", "wheel", "roundtrip"}
    )


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment without extras, whose `roundtrip` is the installed one."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(HIDING.format(hidden=hidden_modules()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROUNDTRIP_", "PYTEST_"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "HOME": str(site.parent),
    }


@pytest.fixture(scope="module")
def forking(without_extras: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Yield a folder with a `roundtrip` that forks a process which has imported everything, without extras."""
    folder = tmp_path_factory.mktemp("forking")
    with commands_with(without_extras, folder) as command_of:
        script = folder / "roundtrip"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command_of(main))} "$@"\n')
        script.chmod(0o700)
        yield folder


@pytest.fixture
def shell(tmp_path: Path, without_extras: dict[str, str], forking: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, without_extras, forking)
    yield shell
    shell.stop_services()


def test_readme_runs_from_top_to_bottom_without_extras(shell: Shell) -> None:
    ((program, _),) = python_blocks(README)
    (shell.folder / "cinema.py").write_text(program.text)
    demo, activate, call, play, tests = (line for block in shell_blocks(README) for line in lines_of(block))
    assert ["pip install" in line for line in (demo, activate, tests)] == [True, False, True]
    assert "Booked 2 seats for Solaris." in shell.run_at_a_terminal(call, "2\nyes\n")
    shell.open_playground(play)


def test_tutorial_runs_from_top_to_bottom_without_extras(shell: Shell) -> None:
    # The first three commands install roundtrip, and pytest needs an extra.
    tutorial.run_commands(shell, [line for line in tutorial.commands()[3:] if not line.startswith("pytest")])


def test_shell_blocks_on_traces_run_in_order(shell: Shell) -> None:
    said = [shell.run(line) for block in shell_blocks(TRACE) for line in block.text.splitlines()]
    assert len(said) >= 7
    assert (shell.folder / "call.html").exists()


def test_shell_blocks_on_audits_print_what_the_page_says(shell: Shell) -> None:
    found = list(blocks(AUDIT))
    (shell.folder / "cinema.py").write_text("".join(block.text for block in found if block.language == "python"))
    said = ""
    for block in found:
        if block in shell_blocks(AUDIT):
            said = shell.run(block.text.strip())
        elif block.language == "text":
            assert [line for line in block.text.splitlines() if line not in said.splitlines()] == []
    assert (shell.folder / "audit.xml").exists()


RUN: Final = frozenset((README, tutorial.PAGE, TRACE, AUDIT))
NO_COMMAND: Final = re.compile(r"^[$%>] |^\(.*\) \$ |path/to")
# An interactive zsh takes a remark for arguments.
NOT_AS_IT_IS: Final = re.compile(r"(^|\s)#|<[a-z-]+>|\bID\b|\.\.\.|…|\bmy_")


def faults() -> Iterator[str]:
    """Yield the lines of shell blocks that a reader cannot paste."""
    for page in [*pages(), *sorted(ROOT.glob("examples/*/README.md"))]:
        for block in shell_blocks(page):
            place = f"{name_of(page)}:{block.line}"
            checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=SECONDS)
            if checked.returncode:
                yield f"{place}: {checked.stderr}"
            for line in lines_of(block):
                if NO_COMMAND.search(line) or (page in RUN and NOT_AS_IT_IS.search(line)):
                    yield f"{place}: {line}"


def test_shell_blocks_are_shell_without_prompts_and_gaps() -> None:
    assert list(faults()) == []
