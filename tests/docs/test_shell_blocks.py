"""Test that readers can paste shell blocks: those of README, tutorial and trace page run in order, in an empty folder.

The modules of all extras are hidden, as after a plain `pip install -e .`.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli import main
from roundtrip.serving.application import READY_PATH
from tests.docs.pages import ROOT, Block, blocks, pages
from tests.kit.forks import commands_with
from tests.kit.hosts import free_port
from tests.package.installed import installed_by

README: Final = ROOT / "README.md"
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
TRACE: Final = ROOT / "docs" / "trace.md"
AUDIT: Final = ROOT / "docs" / "audit.md"
SECONDS: Final = 120
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
def shell(tmp_path: Path, without_extras: dict[str, str], forking: Path) -> "Shell":
    return Shell(tmp_path, without_extras, forking)


class Shell:
    """An empty folder, and an environment without extras.

    Commands at a terminal and services are started as readers start them; the others are forked, which is faster.
    """

    def __init__(self, folder: Path, environment: dict[str, str], forking: Path) -> None:
        self.folder = folder
        self.environment = environment
        self._forking = {**environment, "PATH": f"{forking}{os.pathsep}{environment['PATH']}"}

    def run(self, line: str) -> str:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self._forking,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
        # What has something to explain says so by its exit code.
        allowed = (0, 1) if "trace explain" in line else (0,)
        assert ran.returncode in allowed, f"{line}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def run_at_a_terminal(self, line: str, typed: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            try:
                out, _ = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
                os.close(ours)
        assert process.returncode == 0, line
        return out.decode()


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "bash"]


def lines_of(block: Block) -> Iterator[str]:
    yield from block.text.replace("\\\n", " ").splitlines()


@pytest.fixture
def background() -> Generator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def python_blocks(page: Path) -> tuple[list[str], str]:
    """Return the blocks of a page's program, and the block that is a test."""
    found = [block.text for block in blocks(page) if block.language == "python"]
    (test,) = (text for text in found if text.startswith("import pytest\n"))
    return [text for text in found if text != test], test


def write_readme_programs(folder: Path) -> Path:
    """Write the README's Python blocks into the files that it names, and return its test."""
    program, test = python_blocks(README)
    last = next(place for place, text in enumerate(program) if "__main__" in text)
    (folder / "cinema.py").write_text("\n\n".join(program[: last + 1]))
    (folder / "test_cinema.py").write_text(test)
    return folder / "test_cinema.py"


def write_tutorial_programs(folder: Path) -> Path:
    """Write the tutorial's Python blocks into the files that it names, and return its test."""
    (first, *tour), test = python_blocks(TUTORIAL)
    (folder / "cinema.py").write_text(first)
    (folder / "tour.py").write_text("\n".join(["from cinema import *", *tour]))
    (folder / "test_tour.py").write_text(f"from tour import *\n{test}")
    return folder / "test_tour.py"


def run_from_top_to_bottom(page: Path, shell: Shell, background: list[subprocess.Popen[bytes]]) -> list[str]:
    """Run the shell blocks of a page in order, and return their lines."""
    port = free_port()
    seen: list[str] = []
    for block in shell_blocks(page):
        text = block.text.replace(":8000/", f":{port}/").replace("roundtrip serve", f"roundtrip serve --port {port}")
        for line in text.splitlines():
            seen.append(line)
            if "pip install" in line or line.startswith("source "):
                continue
            if line.startswith("roundtrip call"):
                assert "Booked Solaris, middle row." in shell.run_at_a_terminal(line, "middle\n")
            elif "roundtrip serve" in line:
                started = subprocess.Popen(
                    ["bash", "-c", f"exec env {line}"],
                    cwd=shell.folder,
                    env=shell.environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    stdin=subprocess.DEVNULL,
                )
                background.append(started)
                ready = f"http://127.0.0.1:{port}{READY_PATH}"
                shell.run(f"curl -sf -o /dev/null --retry 60 --retry-delay 1 --retry-all-errors {ready}")
            else:
                shell.run(line)
    assert (shell.folder / "call.html").stat().st_size > 10_000
    return seen


def test_readme_runs_from_top_to_bottom_without_extras(shell: Shell, background: list[subprocess.Popen[bytes]]) -> None:
    write_readme_programs(shell.folder)
    seen = run_from_top_to_bottom(README, shell, background)
    assert any("roundtrip serve" in line for line in seen)


@pytest.mark.nightly
def test_tutorial_runs_from_top_to_bottom_without_extras(
    shell: Shell, background: list[subprocess.Popen[bytes]]
) -> None:
    write_tutorial_programs(shell.folder)
    assert "Booked Solaris, middle row." in shell.run("python tour.py")
    seen = run_from_top_to_bottom(TUTORIAL, shell, background)
    assert any("roundtrip doctor" in line for line in seen)


@pytest.mark.parametrize("write", [write_readme_programs, write_tutorial_programs], ids=["readme", "tutorial"])
def test_test_of_a_page_passes_in_its_own_file(write: Callable[[Path], Path], tmp_path: Path) -> None:
    test = write(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stdout


def test_readme_is_at_most_250_lines_long() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 250


def test_shell_blocks_on_traces_run_in_order(shell: Shell) -> None:
    said = [shell.run(line) for block in shell_blocks(TRACE) for line in block.text.splitlines()]
    assert len(said) >= 7
    assert (shell.folder / "machine.html").exists()


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


PAGES: Final = [page for page in [*pages(), *sorted(ROOT.glob("examples/*/README.md"))] if shell_blocks(page)]
NAMES: Final = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_shell_blocks_are_shell_and_have_no_prompts(page: Path) -> None:
    for block in shell_blocks(page):
        checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=30)
        assert checked.returncode == 0, f"{page.name}:{block.line}: {checked.stderr}"
        for line in lines_of(block):
            assert not re.match(r"[$%>] |\(.*\) \$ ", line), f"{page.name}:{block.line}: {line}"
            assert "path/to" not in line, f"{page.name}:{block.line}: {line}"


@pytest.mark.parametrize("page", [README, TUTORIAL, TRACE, AUDIT], ids=lambda page: page.name)
def test_shell_blocks_hold_nothing_to_replace_and_no_remarks(page: Path) -> None:
    for block in shell_blocks(page):
        for line in lines_of(block):
            # An interactive zsh takes a remark for arguments.
            assert not re.search(r"(^|\s)#|<[a-z-]+>|\bID\b|\.\.\.|…|\bmy_", line), f"{page.name}:{block.line}: {line}"
