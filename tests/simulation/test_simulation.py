"""Simulated histories keep every promise, repeat exactly, and reveal faults.

CI runs thousands of them with `python -m tests.simulation`.
"""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kit.forks import alone
from tests.kit.hosts import ROOT, WAIT
from tests.kit.tiers import at_night, examples
from tests.simulation.faults import FAULTS, first_broken, found

QUICKLY_FOUND = [*FAULTS[4:5], *at_night(*FAULTS[9:11])]


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(4))
def test_every_history_keeps_every_promise(block: int) -> None:
    history = alone(first_broken, range(block, examples(8), 4))
    assert history is None, history.text()


def test_seed_repeats_its_history_exactly() -> None:
    """Also in a process whose sets have another order."""
    said = [
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
    assert len(said[0].splitlines()) > 20
    assert said[0] == said[1]


@pytest.mark.parametrize("fault", QUICKLY_FOUND)
def test_fault_is_found(fault: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert alone(found, fault, range(1, 200)) is not None


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in QUICKLY_FOUND])
def test_every_other_fault_is_found(fault: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert alone(found, fault, range(1, 1000)) is not None
