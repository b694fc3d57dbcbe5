"""roundtrip installs beside the frameworks that authors use, and each of them calls one of its tools."""

import subprocess

import pytest

from tests.kit.own_environments import FRAMEWORKS, ROOT, OwnEnvironment


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_framework_beside_roundtrip_calls_a_tool(framework: str) -> None:
    folder = ROOT / ".ci" / "frameworks" / framework
    environment = OwnEnvironment(folder, ("-e", str(ROOT), FRAMEWORKS[framework]))
    environment.install_or_skip()
    python, program = str(environment.python), "tests/clients/programs/frameworks.py"
    subprocess.run([python, "-m", "pip", "check"], check=True, timeout=120)
    ran = subprocess.run([python, program, framework], capture_output=True, text=True, cwd=ROOT, timeout=120)
    asks = framework in ("fastmcp", "pydantic_ai")
    assert ("Alien, row 3" if asks else "Hello, Ann!") in ran.stdout, ran.stderr
