"""The package works with the oldest and the newest SDK and FastMCP of the windows that it declares."""

import os
import subprocess
import tomllib
from typing import Final

import pytest

from tests.kit.own_environments import NEWEST, OLDEST, WINDOW, EnvironmentMissing
from tests.package.building import ROOT

SECONDS: Final = 300
IN_EVERY_WAY: Final = (
    "tests/interaction/protocol/test_eras.py",
    "tests/interaction/protocol/test_headers.py",
    "tests/interaction/protocol/test_instances.py",
    "tests/interaction/tasks/test_methods.py",
    "tests/interaction/pages/test_approvals_lives.py",
    "tests/interaction/adapters/test_features.py",
    "tests/interaction/adapters/test_arrivals.py",
)
"""Two rounds, headers, tokens that move, tasks, pages and FastMCP, on both eras."""


def test_windows_begin_at_the_oldest_tried_versions() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    windows = [f"{name}>={OLDEST[name]},<3" for name in ("mcp", "mcp-types")]
    assert [one for one in needed if one.startswith("mcp")] == windows
    fastmcp = f"fastmcp>={OLDEST['fastmcp']},<5"
    tried = [f"{OLDEST[name]} and {NEWEST[name]}" for name in ("mcp", "fastmcp")]
    for path, told in {
        "roundtrip/server/sdk_private.py": windows[:1],
        "roundtrip/server/adapters/fastmcp_names.py": [fastmcp],
        "docs/frameworks.md": [windows[0], fastmcp, *tried],
    }.items():
        text = (ROOT / path).read_text()
        assert [one for one in told if one not in text] == [], path


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_both_ends_of_the_windows_ask_in_every_way(end: str) -> None:
    try:
        WINDOW.install()
    except EnvironmentMissing as missing:
        pytest.skip(str(missing))
    versions = OLDEST if end == "oldest" else NEWEST
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env["PYTHONPATH"] = str(WINDOW.older) if end == "oldest" else ""
    script = f"""
from importlib.metadata import version
import pytest
print({{name: version(name) for name in {list(versions)}}}, flush=True)
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", *{IN_EVERY_WAY}]))
"""
    command = [str(WINDOW.python), "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=SECONDS)
    assert (ran.returncode, ran.stdout.splitlines()[:1]) == (0, [str(versions)]), ran.stdout + ran.stderr
