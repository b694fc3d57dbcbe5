"""The script that draws the flame graphs of a leg, and the images that the pages show."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.kit.hosts import ROOT, WAIT

_MAX_BYTES: Final = 200_000


def check_flame_graph(image: Path) -> str:
    """Check that an image is small and stands alone, and return its text."""
    text = image.read_text(encoding="utf-8")
    assert len(text.encode()) < _MAX_BYTES
    ElementTree.fromstring(text)
    assert "Starlette.__call__" in text
    # Nothing of the machine on which it was drawn, and nothing that a viewer would load.
    words = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"site-packages|href|url\(|://|[ >\"]/\w", words)
    assert str(ROOT) not in words
    return text


def test_script_draws_both_graphs_and_prints_shares(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.flame", "--seconds", "0.5", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=True)
    # The shares are of samples, and differ each time.
    assert {len(re.findall(r"\d+%", line)) for line in done.stdout.splitlines()[2:]} == {2}
    for folder in (tmp_path, ROOT / "docs" / "images"):
        check_flame_graph(folder / "plain-call.svg")
        assert "LegRun.serve" in check_flame_graph(folder / "ask-leg.svg")
