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
from tests.clients import tables
from tests.clients.drivers import Driver, Outcome, Target, ToolCall, Transport, of_clients
from tests.clients.shop import CANCELLED, make_server
from tests.clients.tables import CALLS, DONE, KINDS, MISSING, ClientTable
from tests.kit.hosts import stdio

pytestmark = pytest.mark.anyio

COLUMNS: Final = ["over", "declares", "form", "confirmation", "page", "two questions", "review", "eleven questions"]

CONFIRMATION: Final = [call.tool for call in CALLS].index("cancel")

REPORT: Final = ToolCall("what_can_you_ask")
DECLINED: Final = ToolCall("cancel", {"booking": 8})
"""A call whose confirmation the user declines."""
ENDLESS: Final = re.compile(r"(?:after|than|exceeded) (\d+) (?:input-required )?rounds")


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Generator[ClientTable]:
    with tables.table(request, "matrix", columns=COLUMNS) as table:
        yield table


@asynccontextmanager
async def shop(transport: Transport, cancelled: Path) -> AsyncGenerator[Target]:
    """Serve the shop, which writes cancelled bookings to a file."""
    if transport == "HTTP":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CANCELLED, str(cancelled))
            async with served(make_server()) as url:
                yield Target(url=url)
    else:
        command = stdio(make_server)
        # Clients pass few variables on to their servers.
        yield Target(command=["env", f"{CANCELLED}={cancelled}", command.command, *command.args])


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


def check_effect(confirmation: str, declined: Outcome, cancelled: Path) -> None:
    """Check that a booking was cancelled if its user confirmed it, and only then, whatever the client said."""
    effect = cancelled.read_text(encoding="utf-8").split() if cancelled.exists() else []
    assert effect == (["7"] if confirmation == "yes" else [])
    assert declined.error is not None, declined.text
    reason = "The user declined the question" if confirmation == "yes" else "did not declare the form elicitation"
    assert reason in declined.error, declined.error
    assert "'confirm:cancel'" in declined.error


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


@of_clients
async def test_client_completes_or_gets_a_clear_error(driver: Driver, table: ClientTable, tmp_path: Path) -> None:
    await driver.prepare()
    found: list[list[str]] = []
    for transport in driver.transports:
        # On older revisions no client stops after some rounds, so a slow one need not show it.
        is_short = driver.is_slow and driver.revision < FIRST_OF_RETRY_ERA
        calls = [call for call in CALLS if call.tool != "survey" or not is_short]
        cancelled = tmp_path / transport
        async with shop(transport, cancelled) as target:
            report, declined, *outcomes = await driver.run(target, [REPORT, DECLINED, *calls])
        declared = report.data
        assert declared is not None, report.error
        assert declared["protocol"] == driver.revision
        kinds = [KINDS[kind] for kind, can in declared["can_be_asked"].items() if can]
        cells = [cell_of(call, outcome) for call, outcome in zip(calls, outcomes, strict=True)]
        check_effect(cells[CONFIRMATION], declined, cancelled)
        check_known(declared, declared["version"], cells)
        found.append([", ".join(kinds) or "nothing", *cells, *(["not tried"] if is_short else [])])
    assert all(one == found[0] for one in found), "the transports differ"
    table.check(driver, ", ".join(driver.transports), *found[0])


def test_table_has_a_row_for_each_client_and_no_other(table: ClientTable) -> None:
    table.check_starts()
