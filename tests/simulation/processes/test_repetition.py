"""A history depends on its seed only."""

import os
import subprocess
import sys

from tests.kit.hosts import ROOT, WAIT


def test_seed_repeats_its_history_exactly() -> None:
    """Also in a process whose sets have another order."""
    printed = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seeds", "6", "--whole"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=True,
        ).stdout
        for order in ("1", "2")
    ]
    assert len(printed[0].splitlines()) > 20
    assert printed[0] == printed[1]
