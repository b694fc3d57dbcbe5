"""Generator for the pages that are derived from code. Run it with `python -m specs.generate`.

With `--check`, it does not write pages, but fails if a page is stale. A test makes the same check.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from roundtrip.ledger.machines import ENTRY_MACHINE, TASK_MACHINE
from roundtrip.machine.journal_bytes import FORMAT, INTENT_FORMAT
from roundtrip.machine.table import CALL_MACHINE, MachineTable, State
from roundtrip.trace.drawings.machine import mermaid
from roundtrip.trace.writing.lines import LINE
from specs.clients import clients_page
from specs.hosts import hosts_page
from specs.modules import architecture_page, modules_page
from specs.requirements import REQUIREMENTS, Requirement
from specs.tokens import vectors_page

__all__ = ["main", "render", "shown"]

SPECS: Final = Path(__file__).resolve().parent
TESTS: Final = SPECS.parent / "tests"

_SHOWS: Final = re.compile(r"\bShows ((?:[SF]\d+)(?:(?:,? and |, )[SF]\d+)*)")
_ID: Final = re.compile(r"[SF]\d+")


_ENTRY_TEXT: Final = """\
If a tool must run once, a ledger has an entry for each of its calls. A call without an entry is `free`.
`ledger/memory.py` and `ledger/sqlite.py` look up events in the table (`ledger/entry.py`), and `ledger/redis.py` sends
the table to Redis. A property test checks that all ledgers follow the table.

A ledger does not use timers. It applies `lapse` and `forget` when it reads an entry whose time has passed. It also
applies `lapse` to a claim if the holder's process is certainly dead, because a supervisor has reaped it
(`ledger/lease.py`). What a user declined stays declined until its time has passed. A leg makes a claim with `hold` or
`start`. If the tool's body may run again, `reopen` can come first. If the leg names the epoch of a result that no
longer counts, `void` comes first. Only the holder may claim an entry that is not `free`.

Each claim on a `free` entry has an *epoch* that is greater than all earlier epochs. A holder names its epoch in each
operation, and the ledger rejects the operation if the entry has another epoch. Therefore, a holder that was paused
until after its lease cannot overwrite its successor."""


_TASK_TEXT: Final = """\
A task is a stored call. `ledger/tasks.py` looks up events in the table for every store. A store only compares and sets
values, and does not make decisions.

A store does not use timers. `ledger/tasks.py` applies `wake`, `lapse`, `lose` and `expire` when it reads a task whose
time has passed. If the running body must not begin twice, it applies `lose` instead of `lapse`.

Each claim has a new *epoch*. A worker names its epoch in each write, and the write is rejected if the task has another
epoch. Therefore, a worker stops at a write if it was paused until after its lease, or if its task was cancelled."""


def render() -> dict[str, str]:
    """Return every generated file's name and content."""
    return {
        "machine.json": _machine_json(),
        "machine.md": _machine_page(),
        "modules.md": modules_page(),
        "protocol.md": _protocol_page(),
        "transcript.schema.json": _transcript_schema(),
        "vectors/v3.json": vectors_page(),
        "../docs/architecture.md": architecture_page(),
        "../docs/clients.md": clients_page(),
        "../docs/hosts.md": hosts_page(),
    }


def _machine_json() -> str:
    machines: dict[str, Any] = {
        "call": {
            **_machine(CALL_MACHINE),
            "crosses_the_wire": [State.AWAITING_INPUT],
            "journal_format": FORMAT,
            "journal_format_with_intent": INTENT_FORMAT,
        },
        "ledger_entry": _machine(ENTRY_MACHINE),
        "task": _machine(TASK_MACHINE),
    }
    return json.dumps(machines, indent=2) + "\n"


def _machine(table: MachineTable[Any, Any]) -> dict[str, Any]:
    return {
        "initial": table.states[0],
        "states": [{"name": state, "final": state in table.final, "meaning": state.meaning} for state in table.states],
        "events": [{"name": event, "meaning": event.meaning} for event in table.events],
        "arrows": [{"from": arrow.source, "event": arrow.event, "to": arrow.target} for arrow in table.arrows],
    }


def _machine_page() -> str:
    return "\n".join(
        [
            "# The machines",
            "",
            "Generated from `machine/table.py` and `ledger/machines.py` by `python -m specs.generate`.",
            "[machine.json](machine.json) has the same machines as JSON. The `transitions` library draws the diagrams.",
            "",
            "If a state has no arrow for an event, the event changes nothing. A call then raises `IllegalTransition`,",
            "and a ledger rejects the operation.",
            "",
            "## A call",
            "",
            "Every call follows this machine, in both eras. `begin_leg` in `machine/call.py` starts a leg. Only",
            "`engine/leg_run.py`, `engine/silent_body.py` and `engine/rounds.py` move a call through the machine.",
            "",
            *_machine_tables(CALL_MACHINE),
            "",
            "## A ledger entry",
            "",
            _ENTRY_TEXT,
            "",
            *_machine_tables(ENTRY_MACHINE),
            "",
            "## A task",
            "",
            _TASK_TEXT,
            "",
            *_machine_tables(TASK_MACHINE),
            "",
        ]
    )


def _machine_tables(table: MachineTable[Any, Any]) -> list[str]:
    states = [f"| `{state}` | {'yes' if state in table.final else ''} | {state.meaning} |" for state in table.states]
    events = [f"| `{event}` | {event.meaning} |" for event in table.events]
    return [
        "```mermaid",
        mermaid(table),
        "```",
        "",
        "| state | final | meaning |",
        "|---|---|---|",
        *states,
        "",
        "| event | meaning |",
        "|---|---|",
        *events,
    ]


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
            "Generated by `python -m specs.generate` from `specs/requirements.py` and from test docstrings. These",
            "name the clauses that their tests show (`Shows S7.`).",
            "",
            "S clauses concern input-required results and request states. F clauses concern forms. The ids are ours,",
            "but the levels come from the specification. `roundtrip audit` checks parts of the clauses on any server.",
            "Module paths are relative to `roundtrip/`, and test paths are relative to `tests/`.",
            "",
            "| id | level | requirement | modules that meet it | tests that show it |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _requirement_row(requirement: Requirement, tests: Sequence[str]) -> str:
    if requirement.later is not None:
        return f"| {requirement.id} | {requirement.level} | {requirement.demand} | later, with {requirement.later} | |"
    modules = ", ".join(f"[{module}](../roundtrip/{module})" for module in requirement.modules)
    links = "<br>".join(f"[{_title(test)}](../tests/{test.partition('::')[0]})" for test in tests)
    return f"| {requirement.id} | {requirement.level} | {requirement.demand} | {modules} | {links} |"


def _title(test: str) -> str:
    path, _, name = test.partition("::")
    return f"{path}: {name.removeprefix('test_').replace('_', ' ')}"


def shown(tests: Path) -> dict[str, list[str]]:
    """Return, for each clause, the tests that show it, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        # Skip modules that do not show a clause, because parsing all modules is slow.
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
    parser.add_argument("--check", action="store_true", help="do not write pages; fail if a page is stale")
    check = parser.parse_args(arguments).check
    pages = render()
    stale = [name for name, text in pages.items() if not _is_current(SPECS / name, text)]
    if not check:
        for name in stale:
            (SPECS / name).parent.mkdir(parents=True, exist_ok=True)
            (SPECS / name).write_text(pages[name], encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"specs/{name} {'is stale: run python -m specs.generate' if check else 'written'}\n")
    return 1 if check and stale else 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
