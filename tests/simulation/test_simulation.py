"""Simulated histories keep every promise, and reveal a fault.

`.ci/run` tries thousands of them with `python -m tests.simulation`, and `.ci/nightly` all faults with `--faults`.
"""

from tests.kit.forks import run_in_process
from tests.kit.tiers import examples
from tests.simulation.faults import FAULTS, first_broken, found

_QUICKLY_FOUND = FAULTS[4]


def test_every_history_keeps_every_promise() -> None:
    history = run_in_process(first_broken, range(examples(12)))
    assert history is None, history.text()


def test_fault_is_found() -> None:
    assert run_in_process(found, _QUICKLY_FOUND, range(1, 200)) is not None
