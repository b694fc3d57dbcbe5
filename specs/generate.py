"""Writes the pages of this folder that follow from code: `python -m specs.generate`.

With `--check` it writes nothing and fails if a page is stale; a test does the same.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from roundtrip import Event, State
from roundtrip.machine.journal_bytes import FORMAT
from roundtrip.machine.table import ARROWS, FINAL
from roundtrip.trace.drawings.machine import machine_mermaid
from roundtrip.trace.writing.lines import LINE
from specs.requirements import REQUIREMENTS, Requirement
from specs.tokens import vectors_page

__all__ = ["main", "render", "shown"]

SPECS: Final = Path(__file__).resolve().parent
TESTS: Final = SPECS.parent / "tests"

_SHOWS: Final = re.compile(r"\bShows ((?:[SF]\d+)(?:(?:,? and |, )[SF]\d+)*)")
_ID: Final = re.compile(r"[SF]\d+")

_STATES: Final[Mapping[State, str]] = {
    State.RECEIVED: "A first request has arrived.",
    State.RESOLVING: "Resolvers run, and the answers that are known are given to them.",
    State.AWAITING_INPUT: "Questions are out. A token always holds a call in this state: no other crosses the wire.",
    State.RESUMED: "Answers, or at least another request, have arrived.",
    State.EXECUTING: "The tool's body runs.",
    State.COMPLETED: "The client has the tool's result.",
    State.FAILED: "The author's code raised, an answer stayed invalid, or the request was cancelled.",
    State.DECLINED: "The user declined or cancelled something the call could not do without.",
    State.REJECTED: "The token is not one to resume from, or the client cannot be asked.",
}
_EVENTS: Final[Mapping[Event, str]] = {
    Event.BEGIN: "The first leg starts.",
    Event.ASK: "Everything that can run has run, and questions are left. A round begins.",
    Event.RESUME: "The client came back. In the live era: the batch has been answered.",
    Event.RESOLVE: "Resolvers run again, with the new answers.",
    Event.EXECUTE: "Every parameter has its value.",
    Event.REVISE: "The user changed an earlier answer; what depended on it is resolved and run again.",
    Event.FINISH: "The body returned.",
    Event.RECALL: "The result of an earlier run of the body is given instead. Reserved: nothing applies it yet.",
    Event.DECLINE: "A consumer of the bare value met a user who declined or cancelled.",
    Event.REJECT: "The token cannot be resumed from, or the client cannot be asked what it would have to be asked.",
    Event.FAIL: "An error ends the call.",
}


def render() -> dict[str, str]:
    """Every generated file's name and content."""
    return {
        "machine.json": _machine_json(),
        "machine.md": _machine_page(),
        "protocol.md": _protocol_page(),
        "transcript.schema.json": _transcript_schema(),
        "vectors/v3.json": vectors_page(),
    }


def _machine_json() -> str:
    machine: dict[str, Any] = {
        "initial": State.RECEIVED,
        "states": [{"name": state, "final": state in FINAL, "meaning": _STATES[state]} for state in State],
        "events": [{"name": event, "meaning": _EVENTS[event]} for event in Event],
        "arrows": [{"from": arrow.source, "event": arrow.event, "to": arrow.target} for arrow in ARROWS],
        "crosses_the_wire": [State.AWAITING_INPUT],
        "journal_format": FORMAT,
    }
    return json.dumps(machine, indent=2) + "\n"


def _machine_page() -> str:
    states = [f"| `{state}` | {'yes' if state in FINAL else ''} | {_STATES[state]} |" for state in State]
    events = [f"| `{event}` | {_EVENTS[event]} |" for event in Event]
    return "\n".join(
        [
            "# The machine",
            "",
            "Generated from `roundtrip/machine/table.py` by `python -m specs.generate`. The same in JSON is in",
            "[machine.json](machine.json).",
            "",
            "Every call walks this machine, on both eras. Nothing else in roundtrip changes a call's state.",
            "",
            "```mermaid",
            machine_mermaid(),
            "```",
            "",
            "## States",
            "",
            "| state | final | meaning |",
            "|---|---|---|",
            *states,
            "",
            "## Events",
            "",
            "| event | meaning |",
            "|---|---|",
            *events,
            "",
            "An event in a state that has no such arrow raises `IllegalTransition`, and the call stays where it was.",
            "",
        ]
    )


def _transcript_schema() -> str:
    schema = {"$schema": GenerateJsonSchema.schema_dialect, "title": "A line of a transcript", **LINE.json_schema()}
    return json.dumps(schema, indent=2) + "\n"


def _protocol_page() -> str:
    tests = shown(TESTS)
    rows = [_requirement_row(requirement, tests.get(requirement.id, [])) for requirement in REQUIREMENTS]
    return "\n".join(
        [
            "# The protocol's clauses",
            "",
            "Generated by `python -m specs.generate` from `specs/requirements.py` and from the docstrings of tests,",
            "which say which clause they show (`Shows S7.`).",
            "",
            "S clauses are about input-required results and request states, F clauses about forms. The ids are ours.",
            "Modules are relative to `roundtrip/`, tests to `tests/`.",
            "",
            "| id | what it demands | where it is met | tests that show it |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _requirement_row(requirement: Requirement, tests: Sequence[str]) -> str:
    if requirement.later is not None:
        return f"| {requirement.id} | {requirement.demand} | later, with {requirement.later} | |"
    modules = ", ".join(f"[{module}](../roundtrip/{module})" for module in requirement.modules)
    links = "<br>".join(f"[{_title(test)}](../tests/{test.partition('::')[0]})" for test in tests)
    return f"| {requirement.id} | {requirement.demand} | {modules} | {links} |"


def _title(test: str) -> str:
    path, _, name = test.partition("::")
    return f"{path}: {name.removeprefix('test_').replace('_', ' ')}"


def shown(tests: Path) -> dict[str, list[str]]:
    """For each clause the tests that show it, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        # Most show nothing, and reading Python takes a while.
        if _SHOWS.search(source) is None:
            continue
        for name, ids in _claims(ast.parse(source)):
            for id_ in ids:
                found.setdefault(id_, []).append(f"{path.relative_to(tests).as_posix()}::{name}")
    return found


def _claims(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            claims = _SHOWS.findall(ast.get_docstring(node) or "")
            ids = [id_ for claim in claims for id_ in _ID.findall(claim)]
            if ids:
                yield node.name, ids


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m specs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    check = parser.parse_args(arguments).check
    pages = render()
    stale = [name for name, text in pages.items() if not _is_current(SPECS / name, text)]
    if not check:
        for name in stale:
            (SPECS / name).parent.mkdir(exist_ok=True)
            (SPECS / name).write_text(pages[name], encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"specs/{name} {'is stale: run python -m specs.generate' if check else 'written'}\n")
    return 1 if check and stale else 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
