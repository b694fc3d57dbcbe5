"""Test the flame graphs of a leg: the script that draws them, and the files that the pages show."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT

NAMES: Final = ("plain-call.svg", "ask-leg.svg")
_MAX_BYTES: Final = 200_000


def _check(image: Path) -> str:
    text = image.read_text(encoding="utf-8")
    assert len(text.encode()) < _MAX_BYTES
    ElementTree.fromstring(text)
    assert "Starlette.__call__" in text
    # Nothing of the machine on which it was drawn, and nothing that a viewer would load.
    words = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"site-packages|href|url\(|://|[ >\"]/\w", words)
    assert str(ROOT) not in words
    return text


@pytest.mark.parametrize("name", NAMES)
def test_images_of_the_pages_are_self_contained(name: str) -> None:
    _check(ROOT / "docs" / "images" / name)


def test_script_draws_both_graphs_and_prints_shares(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.flame", "--seconds", "0.5", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "LegRun.serve" in _check(tmp_path / "ask-leg.svg")
    _check(tmp_path / "plain-call.svg")
    shares = [re.findall(r"(\d+)%", line) for line in done.stdout.splitlines()[2:]]
    for leg in (0, 1):
        assert 95 <= sum(int(share[leg]) for share in shares) <= 105
