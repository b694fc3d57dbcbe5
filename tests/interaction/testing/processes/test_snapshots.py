"""Snapshots of the same calls in other processes, with other Pythons."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.interaction.testing.keepsakes import tell, tell_wire
from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def pythons() -> list[str]:
    """This Python, and the others that have the package."""
    found = [sys.executable]
    for version in ("3.11", "3.12", "3.13"):
        path = shutil.which(f"python{version}")
        if path is not None and f"{sys.version_info.major}.{sys.version_info.minor}" != version and _has_it(path):
            found.append(path)
    return found


def _has_it(python: str) -> bool:
    command = [python, "-c", "import roundtrip.testing.users"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=WAIT).returncode == 0


def told_by(python: str, *, seed: int) -> list[str]:
    """Return the texts of all calls from another process, for each transport."""
    command = [python, "-c", "from tests.interaction.testing import keepsakes; keepsakes.main()"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("python", pythons())
async def test_other_process_reports_equal_values(python: str) -> None:
    text = await tell("memory") + await tell_wire()
    # The hashes of this process have another seed.
    assert await asyncio.to_thread(told_by, python, seed=0) == [text, text]
