"""The package works with the oldest and the newest SDK and FastMCP of the windows that it declares."""

import os
import subprocess
from typing import Final

import pytest

from tests.kit.own_environments import NEWEST, OLDEST, WINDOW
from tests.package.building import ROOT

SECONDS: Final = 300
IN_EVERY_WAY: Final = (
    "tests/interaction/protocol/test_eras.py",
    "tests/interaction/protocol/test_headers.py",
    "tests/interaction/protocol/test_instances.py",
    "tests/interaction/tasks/test_methods.py",
    "tests/interaction/pages/test_approvals_lives.py",
    "tests/interaction/adapters/test_features.py",
)
"""Two rounds, headers, tokens that move, tasks, pages and FastMCP, on both eras."""
SCRIPT: Final = """
import sys, pytest
from importlib.metadata import version
print({name: version(name) for name in ("mcp", "fastmcp")}, flush=True)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_windows_begin_at_the_oldest_tried_versions() -> None:
    mcp, fastmcp = f"mcp>={OLDEST['mcp']},<3", f"fastmcp>={OLDEST['fastmcp']},<5"
    tried = [f"| {OLDEST[name]} and {NEWEST[name]} |" for name in OLDEST]
    for path, told in {
        "pyproject.toml": [f'"{mcp}"'],
        "roundtrip/sdk.py": [mcp],
        "roundtrip/adapters/fastmcp_names.py": [fastmcp],
        "docs/frameworks.md": [mcp, fastmcp, *tried],
    }.items():
        text = (ROOT / path).read_text()
        assert [one for one in told if one not in text] == [], path


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_both_ends_of_the_windows_ask_in_every_way(end: str) -> None:
    WINDOW.install_or_skip()
    path, versions = (str(WINDOW.folder / "older"), OLDEST) if end == "oldest" else ("", NEWEST)
    arrivals = ["tests/interaction/adapters/test_arrivals.py"] if end == "newest" else []
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"PYTHONPATH": path}
    command = [WINDOW.python, "-c", SCRIPT, *IN_EVERY_WAY, *arrivals]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=SECONDS)
    assert (ran.returncode, ran.stdout.splitlines()[:1]) == (0, [str(versions)]), ran.stdout + ran.stderr
