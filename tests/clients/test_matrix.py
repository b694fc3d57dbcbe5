"""Every foreign client completes what it declared that it can, and gets a clear error for all else.

`pytest tests/clients/test_matrix.py --snapshot-update` writes the results into docs/clients.md; otherwise they are
compared with it.
"""

import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.known_clients import Support, known_client
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.testing import served
from specs.sections import with_section
from tests.clients.drivers import DRIVERS, Driver, Outcome, Target, ToolCall, Transport
from tests.clients.shop import make_server
from tests.hosts import ROOT, stdio

pytestmark = pytest.mark.anyio

PAGE: Final = ROOT / "docs" / "clients.md"
COMMAND: Final = "pytest tests/clients/test_matrix.py --snapshot-update"
HEAD: Final = [
    "| client | revision | over | declares | form | confirmation | page | two questions | review | eleven questions |",
    "|---|---|---|---|---|---|---|---|---|---|",
]

REPORT: Final = ToolCall("what_can_you_ask")
CALLS: Final = (
    ToolCall("book", {"film": "Solaris"}, [{"row": "back"}]),
    ToolCall("cancel", {"booking": 7}, [{}]),
    ToolCall("pay", {}, [{}]),
    ToolCall("invite", {}, [{"value": 2}, {"value": 1}]),
    ToolCall("order", {}, [{"value": 3}, {}]),
    ToolCall("survey", {}, [{"value": number} for number in range(1, 12)]),
)
DONE: Final = {
    "book": ("Solaris, back", ["Which row for Solaris?"]),
    "cancel": ("7 is cancelled", ["Cancel 7?\n\nbooking: 7"]),
    "pay": ("paid", ["Pay on this page https://example.com/pay"]),
    "invite": ("2 and 1", ["How many adults?", "And children, with 2 adults?"]),
    "order": ("3 cups", ["How many cups?", "Is this right?"]),
    "survey": ("66 in eleven answers", [f"Question {number}?" for number in range(1, 12)]),
}
KINDS: Final = {"form": "forms", "URL": "URLs", "sampling": "sampling", "roots": "roots", "tasks": "tasks"}
MISSING: Final = re.compile(r"Client did not declare the (form|URL) elicitation capability required by question '.+'")
ENDLESS: Final = re.compile(r"(?:after|than|exceeded) (\d+) (?:input-required )?rounds")


class Table:
    """The table of the page, and the rows that this run found."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._text = page.read_text(encoding="utf-8")
        lines = [line for line in self._text.splitlines() if line.startswith("| ")]
        self._rows = {self._key(line): line for line in lines}
        self._found: dict[str, str] = {}

    def __contains__(self, row: str) -> bool:
        return self._rows.get(self._key(row)) == row

    def add(self, row: str) -> None:
        self._found[self._key(row)] = row

    def write(self) -> None:
        rows = {**self._rows, **self._found}
        listed = [rows[key] for driver in DRIVERS if (key := self._key(row_start(driver))) in rows]
        text = with_section(self._text, "matrix", [*HEAD, *listed], command=COMMAND)
        self._page.write_text(text, encoding="utf-8")

    @staticmethod
    def _key(row: str) -> str:
        return "|".join(row.split("|")[1:3])


def row_start(driver: Driver) -> str:
    return f"| {driver.name} | {driver.revision} |"


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Generator[Table]:
    table = Table(PAGE)
    yield table
    if request.config.getoption("update_snapshots"):
        table.write()


@asynccontextmanager
async def shop(transport: Transport) -> AsyncGenerator[Target]:
    if transport == "HTTP":
        async with served(make_server()) as url:
            yield Target(url=url)
    else:
        command = stdio(make_server)
        yield Target(command=[command.command, *command.args])


def cell_of(call: ToolCall, outcome: Outcome) -> str:
    """Return the words of the table for an outcome, and fail if it is neither complete nor clear."""
    text, asked = DONE[call.tool]
    if outcome.error is None:
        assert (outcome.text, list(outcome.asked)) == (text, asked)
        return "yes"
    if missing := MISSING.search(outcome.error):
        assert not outcome.asked
        return f"no: declares no {KINDS[missing[1]]}"
    endless = ENDLESS.search(outcome.error)
    assert endless is not None, f"{call.tool}: not a clear error: {outcome.error}"
    assert list(outcome.asked) == asked[: int(endless[1])]
    return f"no: stops after {endless[1]} rounds"


def check_known(declared: dict[str, Any], version: str, cells: Sequence[str]) -> None:
    """Check that the facts about a client of this name agree with what it declares and does."""
    known = known_client(declared["name"], version)
    if known is None:
        return
    for kind, fact in zip(KINDS, (known.form, known.url, known.sampling, known.roots, known.tasks), strict=True):
        if fact in (Support.YES, Support.NO) and not (kind == "tasks" and declared["protocol"] < FIRST_OF_RETRY_ERA):
            assert declared["can_be_asked"][kind] == (fact is Support.YES), f"{known.name}: {kind}"
    for cell in cells:
        if stops := re.fullmatch(r"no: stops after (\d+) rounds", cell):
            assert known.max_rounds == int(stops[1])


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: f"{driver.name}, {driver.revision}")
async def test_client_completes_or_gets_a_clear_error(
    driver: Driver, table: Table, request: pytest.FixtureRequest
) -> None:
    await driver.prepare()
    found: list[list[str]] = []
    for transport in driver.transports:
        # On older revisions no client stops after some rounds, so a slow one need not show it.
        is_short = driver.is_slow and driver.revision < FIRST_OF_RETRY_ERA
        calls = [call for call in CALLS if call.tool != "survey" or not is_short]
        async with shop(transport) as target:
            report, *outcomes = await driver.run(target, [REPORT, *calls])
        declared = report.data
        assert declared is not None, report.error
        assert declared["protocol"] == driver.revision
        kinds = [KINDS[kind] for kind, can in declared["can_be_asked"].items() if can]
        cells = [cell_of(call, outcome) for call, outcome in zip(calls, outcomes, strict=True)]
        check_known(declared, declared["version"], cells)
        found.append([", ".join(kinds) or "nothing", *cells, *(["not tried"] if is_short else [])])
    assert all(one == found[0] for one in found), "the transports differ"
    row = f"{row_start(driver)} {' | '.join([', '.join(driver.transports), *found[0]])} |"
    table.add(row)
    if request.config.getoption("update_snapshots"):
        return
    assert row in table, f"docs/clients.md is stale, run: {COMMAND}"


def test_table_has_a_row_for_each_client_and_no_other(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("update_snapshots"):
        return  # written at the end of this run
    section = PAGE.read_text(encoding="utf-8").partition("<!-- matrix:")[2].partition("<!-- end of matrix")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    starts = [f"|{'|'.join(row.split('|')[1:3])}|" for row in rows]
    assert starts == [row_start(driver) for driver in DRIVERS]
