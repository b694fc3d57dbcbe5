"""The official conformance suite against `examples/everything.py`, on both eras.

Skipped where the suite, or a Node of version 22 or later, is not found; `suite.py` says how to install both.
"""

from typing import Final

import pytest

from tests.conformance.suite import EVERYTHING, REQUIREMENTS, Report, SuiteMissing, find_suite, run

# Both runs of the suite happen before the first test.
pytestmark = pytest.mark.timeout(400)

CLEAN: Final = {
    "2026-07-28": {"http-custom-header-server-validation", "http-header-validation", "json-schema-2020-12"},
    "2025-11-25": {"json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"},
}
"""Unscored scenarios that are clean, besides those about tasks."""

TASK_CHECKS: Final = 44
UNWRITTEN: Final = "tasks-status-notifications"
"""The suite only skips it."""

CHECKS: Final = {"2026-07-28": 115, "2025-11-25": 68}
"""Almost as many checks as passed when this was written; far fewer mean that the suite stopped looking."""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Run each set of requirements once."""
    try:
        suite = find_suite()
    except SuiteMissing as missing:
        pytest.skip(str(missing))
    return {report.requirements: report for report in run(EVERYTHING, suite)}


@pytest.mark.parametrize("requirements", REQUIREMENTS)
def test_every_scenario_is_clean_and_looks_at_as_much_as_before(reports: dict[str, Report], requirements: str) -> None:
    report = reports[requirements]
    assert report.problems == []
    unscored = [scenario for scenario in report.scenarios if not scenario.scored]
    problems = {scenario.name: scenario.problems for scenario in unscored if not scenario.name.startswith("tasks-")}
    assert problems == {name: [] for name in CLEAN[requirements]}
    assert sum(scenario.passed for scenario in report.scenarios if scenario.scored) >= CHECKS[requirements]


def test_all_scenarios_of_tasks_are_clean(reports: dict[str, Report]) -> None:
    tasks = [one for one in reports["2026-07-28"].scenarios if one.name.startswith("tasks-") and one.name != UNWRITTEN]
    assert {scenario.name: scenario.problems for scenario in tasks if scenario.problems} == {}
    assert sum(scenario.passed for scenario in tasks) >= TASK_CHECKS
