"""The audit of roundtrip's server, the SDK's and FastMCP's, whose results are listed in specs/audit.md.

`pytest tests/interaction/audit/thorough/test_libraries.py --snapshot-update` writes the results into the page.
"""

import logging
from typing import Final

import anyio
import pytest

from roundtrip.audit.clauses import CLAUSES
from roundtrip.audit.findings import AuditReport, ClauseVerdict
from specs.sections import with_section
from tests.interaction.audit.audits import audited, failed
from tests.interaction.audit.libraries import TTL
from tests.interaction.audit.thorough.libraries import LIBRARIES, ONCE, TASKS
from tests.kit.hosts import ROOT

PAGE: Final = ROOT / "specs" / "audit.md"
COMMAND: Final = "pytest tests/interaction/audit/thorough/test_libraries.py --snapshot-update"
USERS: Final = ({"authorization": "Bearer app/ada"}, {"authorization": "Bearer app/eve"})
_MAX_FACT_CHARS: Final = 110


async def report_on(name: str) -> AuditReport:
    make = LIBRARIES[name]
    tools = ("book", "cancel", *TASKS.get(make, ()))
    once = ONCE.get(make, frozenset[str]())
    return await audited(make(), *tools, lifespan="on", users=USERS, stale=TTL + 0.2, once=once)


@pytest.fixture(scope="module")
def reports() -> dict[str, AuditReport]:
    async def all_reports() -> dict[str, AuditReport]:
        return {name: await report_on(name) for name in LIBRARIES}

    logging.disable(logging.CRITICAL)
    try:
        return anyio.run(all_reports)
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, reports: dict[str, AuditReport]) -> str:
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("update_snapshots"):
        text = with_section(text, "libraries", rows_of(reports), command=COMMAND)
        text = with_section(text, "facts", facts_of(reports), command=COMMAND)
        PAGE.write_text(text, encoding="utf-8")
    return text


def cell_of(report: AuditReport, clause: str) -> str:
    """Return the worst verdict of the tools, without those that could not be tried if others could."""
    found = {one.verdict for one in report.findings if one.clause.id == clause}
    verdict = next(one for one in ClauseVerdict if one in found)
    return "-" if verdict is ClauseVerdict.UNTRIED else verdict.value


def rows_of(reports: dict[str, AuditReport]) -> list[str]:
    rows = [f"| clause | level | {' | '.join(reports)} |", "|---|---|" + "---|" * len(reports)]
    for clause in CLAUSES.values():
        cells = " | ".join(cell_of(report, clause.id) for report in reports.values())
        rows.append(f"| {clause.id} {clause.demand} | {clause.level.value} | {cells} |")
    return rows


def facts_of(reports: dict[str, AuditReport]) -> list[str]:
    rows = ["| server | clause | what was seen |", "|---|---|---|"]
    for name, report in reports.items():
        for finding in report.findings:
            if finding.verdict in (ClauseVerdict.FAILED, ClauseVerdict.FACT):
                text = finding.texts[0].replace("|", "\\|").replace("\n", " ").replace("\\n", " ")
                shown = text if len(text) <= _MAX_FACT_CHARS else f"{text[:_MAX_FACT_CHARS]}…"
                rows.append(f"| {name} | {finding.clause.id}, `{finding.tool}` | {shown} |")
    return rows


def test_page_lists_verdicts_and_facts_of_each_library(page: str, reports: dict[str, AuditReport]) -> None:
    rows = [*rows_of(reports), *facts_of(reports)]
    assert [row for row in rows if row not in page.splitlines()] == [], f"run: {COMMAND}"


def test_nothing_fails_on_roundtrip_and_on_the_sdk(reports: dict[str, AuditReport]) -> None:
    """Shows S4, S5, S6, S7, S8, S9 and S10."""
    for name, report in reports.items():
        if not name.startswith("FastMCP"):
            assert failed(report) == set(), name
