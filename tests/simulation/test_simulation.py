"""Simulated histories keep every promise, and reveal a fault.

`.ci/run` tries thousands of them with `python -m tests.simulation`, and `.ci/nightly` all faults with `--faults`.
"""

from tests.kit.forks import alone
from tests.kit.tiers import examples
from tests.simulation.faults import FAULTS, first_broken, found

_QUICKLY_FOUND = FAULTS[4]


def test_every_history_keeps_every_promise() -> None:
    history = alone(first_broken, range(examples(12)))
    assert history is None, history.text()


def test_fault_is_found() -> None:
    assert alone(found, _QUICKLY_FOUND, range(1, 200)) is not None
