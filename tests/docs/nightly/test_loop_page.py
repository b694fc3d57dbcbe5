"""The commands of the page of the first project run as they are written, with pip."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.processes.loop import until_green


@pytest.mark.timeout(600)
def test_commands_run_as_they_are_written(tmp_path: Path) -> None:
    """Install this checkout in place of the published package, with pip and its dependencies."""
    (tmp_path / "roundtrip").symlink_to(ROOT)
    folder = tmp_path / "empty"
    folder.mkdir()
    lines = [line.replace('"mcp-roundtrip[testing]"', '"../roundtrip[testing]"') for line in until_green()]
    assert lines != until_green()
    lines = [f"timeout --preserve-status -s INT 30 {line}" if " dev " in line else line for line in lines]
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROUNDTRIP_", "PYTEST_", "PYTHON"))
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env={**kept, "CI": "true"},
        capture_output=True,
        text=True,
        timeout=580,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "http://127.0.0.1:" in ran.stdout
    assert "1 snapshot passed" in ran.stdout
