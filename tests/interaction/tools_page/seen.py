"""Tools that clients see: visibility, removal, one name twice, versions."""

from typing import Any

import pytest

from roundtrip import Server
from tests.interaction.tools_page.rows import ADDED, HIDDEN, Make, Row, add, adding, returning


def furnished(server: Server[Any]) -> None:
    server.add_tool(add, "tool", tags={"admin", "old"})
    server.add_tool(add, "other", tags={"public"})


def after(*changes: Make, first: Make = furnished) -> Make:
    def make(server: Server[Any]) -> None:
        first(server)
        for change in changes:
            change(server)

    return make


def hidden(says: str, *changes: Make) -> Row:
    return Row(says=says, make=after(*changes), lists=HIDDEN, sends={"a": 2, "b": 3}, fails="^Unknown tool: tool$")


def seen(says: str, *changes: Make, tool: str = "tool") -> Row:
    return Row(says=says, make=after(*changes), tool=tool, **ADDED)


VISIBILITY = [
    seen("a tool is seen"),
    hidden("a tool is disabled by its key", lambda s: s.disable(keys={"tool:tool"})),
    hidden("a tool is disabled by one of its tags", lambda s: s.disable(tags={"admin", "unused"})),
    hidden("a tool without the tags of an allowlist is hidden", lambda s: s.enable(tags={"public"}, only=True)),
    seen("a tool with a tag of an allowlist is seen", lambda s: s.enable(tags={"public"}, only=True), tool="other"),
    seen("disabling one leaves the others", lambda s: s.disable(keys={"tool:tool"}), tool="other"),
    seen("what is enabled later is seen", lambda s: s.disable(tags={"admin"}), lambda s: s.enable(keys={"tool:tool"})),
    hidden(
        "what is disabled later is hidden", lambda s: s.enable(keys={"tool:tool"}), lambda s: s.disable(tags={"old"})
    ),
    Row(
        says="what is registered later is hidden too",
        make=after(furnished, first=lambda s: s.disable(tags={"admin"})),
        lists=HIDDEN,
    ),
    Row(says="a tool may be registered hidden", make=adding(add, enabled=False), lists=HIDDEN),
    hidden("a tool is removed by the server", lambda s: s.remove_tool("tool")),
    hidden("a tool is removed by the local provider", lambda s: s.local_provider.remove_tool("tool")),
    seen("removing one leaves the others", lambda s: s.local_provider.remove_tool("tool"), tool="other"),
]


# One name twice.


def twice(server: Server[Any]) -> None:
    for version in ("first", "second"):
        returning(version)(server)


def twice_as_an_error(server: Server[Any]) -> None:
    with pytest.raises(ValueError, match="Tool already exists: tool"):
        twice(server)


def registered(says: str, gets: str, **options: Any) -> Row:
    return Row(says=says, make=twice, options=options, sends={}, gets=gets)


DUPLICATES = [
    registered("a second tool of a name replaces the first", "second"),
    registered("a second tool replaces the first with a warning", "second", on_duplicate_tools="warn"),
    registered("a second tool may replace the first without one", "second", on_duplicate_tools="replace"),
    registered("a second tool may be ignored", "first", on_duplicate_tools="ignore"),
    Row(
        says="a second tool may be an error, which leaves the first",
        make=twice_as_an_error,
        options={"on_duplicate_tools": "error"},
        sends={},
        gets="first",
    ),
]


# Versions.


def versioned(*versions: str | int) -> Make:
    def make(server: Server[Any]) -> None:
        for version in versions:
            returning(f"version {version}", version=version)(server)

    return make


def asked(version: str, *, by: str = "roundtrip") -> Any:
    return {"roundtrip/version": version} if by == "roundtrip" else {"fastmcp": {"version": version}}


VERSIONS = [
    Row(
        says="of several versions the highest is listed, with the others beside it",
        make=versioned("1.0", "2.0", "1.5"),
        lists={"_meta.fastmcp.version": "2.0", "_meta.fastmcp.versions": ["2.0", "1.5", "1.0"]},
        sends={},
        gets="version 2.0",
    ),
    Row(says="versions compare as numbers", make=versioned("1.10", "1.9"), sends={}, gets="version 1.10"),
    Row(says="a prerelease is below its release", make=versioned("2.0", "2.0rc1"), sends={}, gets="version 2.0"),
    Row(says="a version may be a number", make=versioned(2, 10), lists={"_meta.fastmcp.version": "10"}, sends={}),
    Row(says="plain text compares as text", make=versioned("blue", "red"), sends={}, gets="version red"),
    *(
        Row(
            says=f"a request may name a version in the words of {by}",
            make=versioned("1.0", "2.0"),
            sends={},
            meta=asked("1.0", by=by),
            gets="version 1.0",
        )
        for by in ("roundtrip", "fastmcp")
    ),
    Row(
        says="a version that is not there is an unknown tool",
        make=versioned("1.0", "2.0"),
        sends={},
        meta=asked("3.0"),
        fails="^Unknown tool: tool$",
    ),
    Row(
        says="without its highest version the next one serves",
        make=after(lambda s: s.remove_tool("tool", "2.0"), first=versioned("1.0", "2.0")),
        sends={},
        gets="version 1.0",
    ),
    Row(
        says="a version is disabled by its key",
        make=after(lambda s: s.disable(keys={"tool:tool@2.0"}), first=versioned("1.0", "2.0")),
        sends={},
        gets="version 1.0",
    ),
]
