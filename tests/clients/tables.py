"""The tables of `docs/clients.md` that the tests of foreign clients write, and the calls that both are about."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest

from specs.sections import with_section
from tests.clients.drivers import DRIVERS, Driver, ToolCall
from tests.kit.hosts import ROOT

__all__ = ["CALLS", "DONE", "KINDS", "MISSING", "ClientTable", "survey", "table"]

PAGE: Final = ROOT / "docs" / "clients.md"


def survey(number: int) -> ToolCall:
    """Return a call that asks a number of questions, one after another."""
    return ToolCall("survey", {"number": number}, [{"value": place} for place in range(1, number + 1)])


CALLS: Final = (
    ToolCall("book", {"film": "Solaris"}, [{"row": "back"}]),
    ToolCall("cancel", {"booking": 7}, [{}]),
    ToolCall("pay", {}, [{}]),
    ToolCall("invite", {}, [{"value": 2}, {"value": 1}]),
    ToolCall("order", {}, [{"value": 3}, {}]),
    survey(11),
)
DONE: Final = {
    "book": ("Solaris, back", ["Which row for Solaris?"]),
    "cancel": ("7 is cancelled", ["Cancel 7?\n\nbooking: 7"]),
    "pay": ("paid", ["Pay on this page https://example.com/pay"]),
    "invite": ("2 and 1", ["How many adults?", "And children, with 2 adults?"]),
    "order": ("3 cups", ["How many cups?", "Is this right?"]),
    "survey": ("66 in 11 answers", [f"Question {number}?" for number in range(1, 12)]),
}
KINDS: Final = {"form": "forms", "URL": "URLs", "sampling": "sampling", "roots": "roots", "tasks": "tasks"}
MISSING: Final = re.compile(r"Client did not declare the (form|URL) elicitation capability required by question '.+'")


class ClientTable:
    """One table, and the rows that this run found.

    Args:
        section: The name of its section.
        command: The command that writes it.
        columns: The headings behind those of the client and its revision.
        updates: Whether this run writes the rows instead of comparing them.
    """

    def __init__(self, section: str, *, command: str, columns: list[str], updates: bool) -> None:
        self._command = command
        self._section = section
        self._columns = ["client", "revision", *columns]
        self._updates = updates
        self._found: dict[str, str] = {}

    def check(self, driver: Driver, *cells: str) -> None:
        """Take note of what a client does, and compare it with the page."""
        row = _row_of(driver, *cells)
        self._found[_start_of(row)] = row
        assert self._updates or row in self._read(), f"docs/clients.md is stale, run: {self._command}"

    def check_starts(self) -> None:
        """Check that the page has a row for each client, in order, and no other."""
        assert self._updates or [_start_of(row) for row in self._read()] == _STARTS

    def write(self) -> None:
        """Replace the rows of the clients that ran, if this run writes them."""
        if not self._updates:
            return
        # Read now: another worker of the tests may have written its rows meanwhile.
        rows = {**{_start_of(row): row for row in self._read()}, **self._found}
        head = [f"| {' | '.join(self._columns)} |", f"|{'---|' * len(self._columns)}"]
        lines = [*head, *(rows[start] for start in _STARTS if start in rows)]
        text = with_section(PAGE.read_text(encoding="utf-8"), self._section, lines, command=self._command)
        PAGE.write_text(text, encoding="utf-8")

    def _read(self) -> list[str]:
        text = PAGE.read_text(encoding="utf-8")
        section = text.partition(f"<!-- {self._section}:")[2].partition(f"<!-- end of {self._section} -->")[0]
        return [line for line in section.splitlines() if line.startswith("| ")][1:]


@contextmanager
def table(request: pytest.FixtureRequest, section: str, *, columns: list[str]) -> Generator[ClientTable]:
    """Yield a table that the tests of a module write."""
    command = f"pytest {request.path.relative_to(ROOT)} --snapshot-update"
    made = ClientTable(
        section, command=command, columns=columns, updates=bool(request.config.getoption("update_snapshots"))
    )
    yield made
    made.write()


def _row_of(driver: Driver, *cells: str) -> str:
    return f"| {' | '.join([driver.name, driver.revision, *cells])} |"


def _start_of(row: str) -> str:
    return "|".join(row.split("|")[1:3])


_STARTS: Final = [_start_of(_row_of(driver)) for driver in DRIVERS]
"""The client and the revision of each row that a page should have, in order."""
