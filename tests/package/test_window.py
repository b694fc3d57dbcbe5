"""The package works with the SDKs and FastMCPs of its windows, and with later ones that have moved private names."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import pytest

from tests.kit.own_environments import BETWEEN, FRAMEWORKS, NEWEST, OLDEST, WINDOW
from tests.kit.tiers import Tier, current_tier
from tests.package.building import ROOT

SECONDS: Final = 300
IN_EVERY_WAY: Final = (
    "tests/interaction/protocol/test_eras.py",
    "tests/interaction/protocol/test_headers.py",
    "tests/interaction/protocol/test_instances.py",
    "tests/interaction/ledger/test_exactly_once.py",
    "tests/interaction/tasks/test_methods.py",
    "tests/interaction/pages/test_approvals_lives.py",
    "tests/interaction/adapters/test_features.py",
)
"""Two rounds, headers, tokens that move, exactly once, tasks, pages and FastMCP, on both eras."""
USED: Final = {
    "_admit_session": "_server_instances _session_owners",
    "_build_capabilities": "_build_session",
    "_connection": "",
    "_handle_call_tool": "",
    "_has_started": "",
    "_is_client_tool_call": "",
    "_lifespan_state": "",
    "_output_adapter": "",
    "_resources": "",
}
"""Private names that roundtrip still uses if they exist, with names that it uses for the same."""
FORMER: Final = [
    *("_additional_http_routes", "_call_tool_name", "_client_params", "_components", "_custom_starlette_routes"),
    *("_get_additional_http_routes", "_handle_get_prompt", "_handle_read_resource", "_inner", "_lowlevel_server"),
    *("_mcp_server", "_normalize_call_tool_result", "_original_name", "_prompt_manager", "_prompts"),
    *("_request_state_security", "_resource_manager", "_streamable_http_modern", "_subscriptions", "_task_group"),
    *("_otel", "_templates", "_tool_manager", "_tools", "_typed", "_WrappedProvider"),
]
"""Private names of the SDK and FastMCP around which roundtrip works, whatever they are called."""
ALL: Final = [*USED, *(name for names in USED.values() for name in names.split()), *FORMER]
SCRIPT: Final = """
import os, sys, pytest
from importlib.metadata import version
print({name: version(name) for name in ("mcp", "fastmcp")}, flush=True)
if renamed := os.environ.get("RENAMED"):
    __import__("tests.kit.renamed_names").kit.renamed_names.rename(renamed.split(), packages={"mcp", "fastmcp"})
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def matrix() -> str:
    rows = [f"| `{name}` | {OLDEST[name]}, {BETWEEN[name]}, {NEWEST[name]} | {version(name)} |" for name in OLDEST]
    return "\n".join(["| package | tried | all tests run with |", "|---|---|---|", *rows]) + "\n"


def test_windows_begin_at_the_oldest_tried_versions() -> None:
    mcp, fastmcp = f"mcp>={OLDEST['mcp']},<3", f"fastmcp>={OLDEST['fastmcp']},<5"
    for path, told in {
        "pyproject.toml": [f'"{mcp}"'],
        "roundtrip/sdk.py": [mcp],
        "roundtrip/adapters/fastmcp_names.py": [fastmcp],
        "docs/stability.md": [mcp, fastmcp, matrix(), *(f"`{one}`" for one in (*FRAMEWORKS.values(), *USED))],
    }.items():
        text = (ROOT / path).read_text()
        assert [one for one in told if one not in text] == [], path


@pytest.mark.parametrize("folder", ["older", *(["between"] if current_tier() is Tier.NIGHTLY else []), ""])
def test_versions_of_the_windows_ask_in_every_way(folder: str) -> None:
    WINDOW.install_or_skip()
    path, versions = (
        str(WINDOW.folder / folder) if folder else "",
        {"older": OLDEST, "between": BETWEEN, "": NEWEST}[folder],
    )
    arrivals = [] if folder else [f"tests/interaction/adapters/test_{name}.py" for name in ("arrivals", "consent")]
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"PYTHONPATH": path}
    command = [WINDOW.python, "-c", SCRIPT, *IN_EVERY_WAY, *arrivals]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=SECONDS)
    assert (ran.returncode, ran.stdout.splitlines()[:1]) == (0, [str(versions)]), ran.stdout + ran.stderr


def played(names: Sequence[str], tests: Sequence[str]) -> tuple[int, str]:
    environment = os.environ | {"RENAMED": " ".join(names), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, *tests]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=SECONDS)
    return ran.returncode, ran.stdout + ran.stderr


def test_future_sdk_that_has_renamed_all_private_names_asks_in_every_way() -> None:
    code, output = played(ALL, [*IN_EVERY_WAY, "tests/interaction/adapters/test_arrivals.py"])
    assert code == 0, output


@pytest.mark.parametrize("name", [*USED, *(FORMER if current_tier() is Tier.NIGHTLY else ())])
def test_future_sdk_that_has_renamed_one_private_name_asks(name: str) -> None:
    adapters = ["tests/interaction/adapters/test_features.py"] if name == "_is_client_tool_call" else []
    code, output = played([name, *USED.get(name, "").split()], [*IN_EVERY_WAY[:3], *adapters])
    assert code == 0, output
