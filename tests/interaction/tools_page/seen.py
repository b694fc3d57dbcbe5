"""Tools that clients see: removal, and one name twice."""

from typing import Any

import pytest

from roundtrip import Server
from tests.interaction.tools_page.rows import ADDED, HIDDEN, Make, Row, add, returning


def after(*changes: Make) -> Make:
    def make(server: Server[Any]) -> None:
        server.add_tool(add, "tool")
        server.add_tool(add, "other")
        for change in changes:
            change(server)

    return make


def hidden(says: str, *changes: Make) -> Row:
    return Row(says=says, make=after(*changes), lists=HIDDEN, sends={"a": 2, "b": 3}, fails="^Unknown tool: tool$")


VISIBILITY = [
    hidden("a tool is removed by the server", lambda s: s.remove_tool("tool")),
    hidden("a tool is removed by the local provider", lambda s: s.local_provider.remove_tool("tool")),
    Row(
        says="removing one leaves the others",
        make=after(lambda s: s.local_provider.remove_tool("tool")),
        tool="other",
        **ADDED,
    ),
]


def twice(server: Server[Any]) -> None:
    for version in ("first", "second"):
        returning(version)(server)


def twice_as_an_error(server: Server[Any]) -> None:
    with pytest.raises(ValueError, match="Tool already exists: tool"):
        twice(server)


def registered(says: str, gets: str, make: Make = twice, **options: Any) -> Row:
    return Row(says=says, make=make, options=options, sends={}, gets=gets)


DUPLICATES = [
    registered("a second tool of a name replaces the first", "second"),
    registered("a second tool replaces the first with a warning", "second", on_duplicate_tools="warn"),
    registered("a second tool may replace the first without one", "second", on_duplicate_tools="replace"),
    registered("a second tool may be ignored", "first", on_duplicate_tools="ignore"),
    registered("a second tool may be an error", "first", twice_as_an_error, on_duplicate_tools="error"),
]
