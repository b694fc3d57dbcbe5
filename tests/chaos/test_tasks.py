"""Tasks of workers and instances that are killed, on every store that outlives a process.

The same at full size: `python -m tests.chaos.tasks`, and `python -m tests.chaos.tasks.served` for the workers of one
`roundtrip serve` with a FastMCP server.
"""

from functools import partial

import anyio
import pytest

from tests.chaos.fleet.attack import Plan
from tests.chaos.tasks.__main__ import INSTANCES, WORKERS
from tests.chaos.tasks.attack import attack_tasks
from tests.chaos.tasks.processes import worksite
from tests.chaos.tasks.served import attack_served, served_site
from tests.kit.programs import needs


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=needs("postgres"))])
def test_tasks_survive_an_attack_on_workers_instances_and_updates(kind: str) -> None:
    plan = Plan(calls=40, kills=6, seed=3)
    with worksite(kind, instances=INSTANCES, workers=WORKERS, lease=3) as site:
        report = anyio.run(partial(attack_tasks, plan, site))
    assert not report.wrong, report.text()
    assert report.counted["completed"] == plan.calls, report.text()
    killed = sum(count for what, count in report.counted.items() if what.startswith("killed"))
    assert killed == plan.kills
    for what in ("killed: inside a step", "killed: an instance", "updates lost", "doubled"):
        assert report.counted[what], what


def test_fastmcp_tasks_survive_an_attack_on_the_workers_of_one_service() -> None:
    plan = Plan(calls=40, kills=6, seed=3)
    with served_site(lease=3) as site:
        report = anyio.run(partial(attack_served, plan, site))
    assert not report.wrong, report.text()
    assert report.counted["completed"] == plan.calls, report.text()
    assert report.counted["workers killed"] == plan.kills
