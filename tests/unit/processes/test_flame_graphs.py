"""The script that draws the flame graphs of a leg."""

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.flame_graphs import check_flame_graph
from tests.kit.hosts import ROOT, WAIT


def test_script_draws_both_graphs_and_prints_shares(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.flame", "--seconds", "0.5", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=True)
    assert "LegRun.serve" in check_flame_graph(tmp_path / "ask-leg.svg")
    check_flame_graph(tmp_path / "plain-call.svg")
    # The shares are of samples, and differ each time.
    assert {len(re.findall(r"\d+%", line)) for line in done.stdout.splitlines()[2:]} == {2}
