"""Tools that run once per intent, while clients repeat calls, and processes die, stop and change.

The same at full size: `python -m tests.chaos.intents`.
"""

from functools import partial

import anyio
import pytest

from tests.chaos.fleet.attack import Plan
from tests.chaos.intents.attack import FAULTS, attack_intents
from tests.chaos.intents.processes import has_release
from tests.kit.programs import needs

_CALLS = 30


@pytest.mark.parametrize(
    ("fault", "ledger"),
    [
        ("first-round", "memory"),
        ("all-at-once", "sqlite"),
        pytest.param("paused", "redis", marks=needs("redis")),
        ("rotated-key", "sqlite"),
        pytest.param("half-0.2", "postgres", marks=needs("postgres")),
        ("to-once-per", "sqlite"),
    ],
)
def test_intents_survive(fault: str, ledger: str) -> None:
    if FAULTS[fault].old and not has_release():
        pytest.skip("git has no commit of version 0.2.0")
    report = anyio.run(partial(attack_intents, Plan(_CALLS, kills=2, seed=3), fault, ledger))
    assert not report.wrong, report.text()
    assert report.counted["end: result"], report.text()
    if fault == "rotated-key":
        assert report.counted["rollouts"] == 4, report.text()
