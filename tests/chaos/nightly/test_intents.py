"""A large attack on tools that run once per intent: every fault on every ledger."""

from functools import partial

import anyio
import pytest

from tests.chaos.fleet.attack import Plan
from tests.chaos.intents.attack import FAULTS, LEDGERS, attack_intents
from tests.chaos.intents.processes import has_release
from tests.kit.programs import needs

_NEEDED = {"redis": [needs("redis")], "postgres": [needs("postgres")]}


@pytest.mark.parametrize("ledger", [pytest.param(kind, marks=_NEEDED.get(kind, [])) for kind in LEDGERS])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.timeout(900)
def test_many_intents_survive(fault: str, ledger: str) -> None:
    if ledger == "memory" and not FAULTS[fault].in_memory:
        pytest.skip("one process has nothing left after this fault")
    if FAULTS[fault].old and not has_release():
        pytest.skip("git has no commit of version 0.2.0")
    report = anyio.run(partial(attack_intents, Plan(calls=500, kills=20, seed=1), fault, ledger))
    print(report.text())
    assert not report.wrong, report.text()
