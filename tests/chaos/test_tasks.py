"""Tasks of workers and instances that are killed, on every store that outlives a process."""

from functools import partial

import anyio
import pytest

from tests.chaos.fleet.attack import Plan, Report
from tests.chaos.tasks.__main__ import INSTANCES, WORKERS
from tests.chaos.tasks.attack import attack_tasks
from tests.chaos.tasks.places import KINDS
from tests.chaos.tasks.processes import worksite
from tests.kit.tiers import rarely


def survived(kind: str, plan: Plan, *, lease: float) -> Report:
    with worksite(kind, instances=INSTANCES, workers=WORKERS, lease=lease) as site:
        report = anyio.run(partial(attack_tasks, plan, site))
    assert not report.wrong, report.text()
    assert report.counted["completed"] == plan.calls, report.text()
    killed = sum(count for what, count in report.counted.items() if what.startswith("killed"))
    assert killed == plan.kills
    return report


@pytest.mark.parametrize("kind", rarely(KINDS, every=2))
def test_tasks_survive_an_attack_on_workers_instances_and_updates(kind: str) -> None:
    report = survived(kind, Plan(calls=40, kills=6, seed=3), lease=3)
    for what in ("killed: inside a step", "killed: an instance", "updates lost", "doubled"):
        assert report.counted[what], what


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_tasks_survive_sixty_deaths(kind: str) -> None:
    """The same as `python -m tests.chaos.tasks`."""
    survived(kind, Plan(calls=1000, kills=60, seed=1), lease=5)
