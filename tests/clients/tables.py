"""The tables of `docs/clients.md` that the tests of foreign clients write, and the calls that both are about."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest

from specs.sections import with_section
from tests.clients.drivers import DRIVERS, Driver, ToolCall
from tests.kit.hosts import ROOT

__all__ = ["APP_HOSTS", "CALLS", "DONE", "KINDS", "MISSING", "ClientTable", "survey", "table", "table_of_hosts"]

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


class HostWithApps(NamedTuple):
    """A host that shows apps, on one revision of the protocol."""

    name: str
    revision: str


Client = Driver | HostWithApps

_HOSTS: Final = (
    "MCP Inspector 2.12, in the browser",
    "Host on ext-apps 2.0 and TypeScript SDK 2.4",
    "AI SDK 2.0 with its helpers for apps",
)
APP_HOSTS: Final = [HostWithApps(name, revision) for name in _HOSTS for revision in ("2026-07-28", "2025-11-25")]
HOST_COLUMNS: Final = ["form", "confirmation", "review", "three questions", "approval"]


class ClientTable:
    """One table, and the rows that this run found.

    Args:
        section: The name of its section.
        command: The command that writes it.
        columns: The headings behind those of the client and its revision.
        updates: Whether this run writes the rows instead of comparing them.
        clients: The clients of the rows, in order.
    """

    def __init__(
        self, section: str, *, command: str, columns: list[str], updates: bool, clients: Sequence[Client] = DRIVERS
    ) -> None:
        self._command = command
        self._section = section
        self._columns = ["client", "revision", *columns]
        self._updates = updates
        self._found: dict[str, str] = {}
        self._starts = [_start_of(_row_of(client)) for client in clients]

    def check(self, client: Client, *cells: str) -> None:
        """Take note of what a client does, and compare it with the page."""
        row = _row_of(client, *cells)
        self._found[_start_of(row)] = row
        assert self._updates or row in self._read(), f"docs/clients.md is stale, run: {self._command}"

    def cells(self, client: Client) -> list[str]:
        """Return what the page says about a client."""
        (row,) = [row for row in self._read() if _start_of(row) == _start_of(_row_of(client))]
        return row.strip("| ").split(" | ")[2:]

    def check_starts(self) -> None:
        """Check that the page has a row for each client, in order, and no other."""
        assert self._updates or [_start_of(row) for row in self._read()] == self._starts

    def write(self) -> None:
        """Replace the rows of the clients that ran, if this run writes them."""
        if not self._updates:
            return
        # Read now: another worker of the tests may have written its rows meanwhile.
        rows = {**{_start_of(row): row for row in self._read()}, **self._found}
        head = [f"| {' | '.join(self._columns)} |", f"|{'---|' * len(self._columns)}"]
        lines = [*head, *(rows[start] for start in self._starts if start in rows)]
        text = with_section(PAGE.read_text(encoding="utf-8"), self._section, lines, command=self._command)
        PAGE.write_text(text, encoding="utf-8")

    def _read(self) -> list[str]:
        text = PAGE.read_text(encoding="utf-8")
        section = text.partition(f"<!-- {self._section}:")[2].partition(f"<!-- end of {self._section} -->")[0]
        return [line for line in section.splitlines() if line.startswith("| ")][1:]


@contextmanager
def table(request: pytest.FixtureRequest, section: str, *, columns: list[str]) -> Generator[ClientTable]:
    """Yield a table that the tests of a module write."""
    yield from _table(request, section, str(request.path.relative_to(ROOT)), columns=columns)


@contextmanager
def table_of_hosts(request: pytest.FixtureRequest) -> Generator[ClientTable]:
    """Yield the table of hosts that show apps, which several modules write."""
    files = "tests/browser/foreign tests/clients/test_ai_sdk_apps.py"
    yield from _table(request, "hosts with apps", files, columns=HOST_COLUMNS, clients=APP_HOSTS)


def _table(request: pytest.FixtureRequest, section: str, files: str, **options: Any) -> Generator[ClientTable]:
    updates = bool(request.config.getoption("update_snapshots"))
    made = ClientTable(section, command=f"pytest {files} --snapshot-update", updates=updates, **options)
    yield made
    made.write()


def _row_of(client: Client, *cells: str) -> str:
    return f"| {' | '.join([client.name, client.revision, *cells])} |"


def _start_of(row: str) -> str:
    return "|".join(row.split("|")[1:3])
