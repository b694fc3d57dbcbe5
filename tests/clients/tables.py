"""The tables of `docs/clients.md` that the tests of foreign clients write, and the calls that both are about."""

import re
from pathlib import Path
from typing import Final

from specs.sections import with_section
from tests.clients.drivers import DRIVERS, Driver, ToolCall
from tests.kit.hosts import ROOT

__all__ = ["CALLS", "DONE", "KINDS", "MISSING", "ClientTable", "row_of", "survey"]

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
        page: The file.
    """

    def __init__(self, section: str, *, command: str, columns: list[str], page: Path = PAGE) -> None:
        self.command = command
        self._section = section
        self._columns = ["client", "revision", *columns]
        self._page = page
        self._rows = {_start_of(row): row for row in self._read()}
        self._found: dict[str, str] = {}

    def __contains__(self, row: str) -> bool:
        return self._rows.get(_start_of(row)) == row

    @property
    def starts(self) -> list[str]:
        """Return the client and the revision of each row of the page, in order."""
        return [_start_of(row) for row in self._read()]

    @property
    def wanted(self) -> list[str]:
        """Return the client and the revision of each row that the page should have, in order."""
        return [_start_of(row_of(driver)) for driver in DRIVERS]

    def add(self, row: str) -> None:
        self._found[_start_of(row)] = row

    def write(self) -> None:
        """Replace the rows of the clients that ran."""
        # Read again: another worker of the tests may have written its rows meanwhile.
        rows = {**{_start_of(row): row for row in self._read()}, **self._found}
        listed = [rows[start] for start in self.wanted if start in rows]
        head = [f"| {' | '.join(self._columns)} |", f"|{'---|' * len(self._columns)}"]
        text = self._page.read_text(encoding="utf-8")
        self._page.write_text(
            with_section(text, self._section, [*head, *listed], command=self.command), encoding="utf-8"
        )

    def _read(self) -> list[str]:
        text = self._page.read_text(encoding="utf-8")
        section = text.partition(f"<!-- {self._section}:")[2].partition(f"<!-- end of {self._section} -->")[0]
        return [line for line in section.splitlines() if line.startswith("| ")][1:]


def row_of(driver: Driver, *cells: str) -> str:
    return f"| {' | '.join([driver.name, driver.revision, *cells])} |"


def _start_of(row: str) -> str:
    return "|".join(row.split("|")[1:3])
