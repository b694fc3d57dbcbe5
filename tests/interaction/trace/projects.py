"""A project of servers and generated tests, which run in a process of their own."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli import main
from tests.interaction.trace.deploys import Recording, last_call
from tests.kit.forks import start

__all__ = ["TAKES", "Project"]

TAKES: Final = 110.0
"""Seconds that a run of generated tests may take."""


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest in a process of its own, and leave no compiled modules of sources that change within a second."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, "")
    return pytest.main([*arguments])


class Project:
    """Folder with modules of servers and generated tests only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def serve(self, source: str, name: str = "shop") -> None:
        (self.folder / f"{name}.py").write_text(source, encoding="utf-8")

    def generate(self, recording: Recording, *options: str, name: str = "call", server: str = "shop") -> str:
        """Make a test of the last recorded call, and return its source."""
        file = self.folder / f"test_{name}.py"
        what = [last_call(recording), "--server", f"{server}:server", *options, "--output", str(file)]
        assert main(["trace", "to-test", *what, str(recording.file)]) == 0
        return file.read_text(encoding="utf-8")

    def run(self) -> tuple[dict[str, set[str]], str]:
        """Run all tests, with this Python and without this repository's settings: how each ended, and the output."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ROUNDTRIP"))
        }
        # What else is installed here is not there in a fresh project.
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
        plugins = ["-p", "anyio", "-p", "roundtrip", "-p", "no:cacheprovider"]
        arguments = ["-vv", "-rA", "--rootdir", str(self.folder), *plugins]
        with (self.folder / "output").open("w+", encoding="utf-8") as file:
            number = file.fileno()
            start(run_pytest, arguments, cwd=self.folder, env=environment, stdout=number, stderr=number).wait(TAKES)
            file.seek(0)
            output = file.read()
        ended: dict[str, set[str]] = {}
        for how, name in re.findall(r"^(PASSED|FAILED|ERROR) test_(\w+)\.py", output, re.MULTILINE):
            ended.setdefault(name, set()).add(how.lower())
        return ended, output
