"""`roundtrip tasks`: list, show, cancel and retry stored tasks, and renew their keys."""

import json
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP
from roundtrip.cli.parsing import OptionsAnywhere, add_json
from roundtrip.cli.stored_calls import (
    EXIT_CODES,
    Shelf,
    act_on_each,
    add_audit,
    add_even_once,
    add_reveal,
    found_call,
    is_due,
    load_shelf,
    print_facts,
    stored_facts,
    using_store,
)

if TYPE_CHECKING:
    from roundtrip.ledger.tasks import TaskSummary

__all__ = ["COMMAND", "STATES"]

_DESCRIPTION: Final = """\
Look at the tasks that are stored in a server's ledger, and change them. The server is loaded for its ledger and its
keys, and runs nothing."""

_ACTIONS: Final = {
    "ls": "list tasks, and calls that wait for a page, a model or an approval, the last changed first",
    "show": "show one task",
    "cancel": "cancel tasks, as their clients could",
    "retry": "let workers continue lost tasks behind their stored steps",
    "rekey": "encrypt all tasks with the newest key",
}
_LIMIT: Final = 50
STATES: Final = ("due", "running", "asking", "waiting", "completed", "failed", "lost", "cancelled")
"""The states of tasks, so that the parser need not import their machine; a test compares them."""


def _configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=OptionsAnywhere
    )
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary)
        action.description = f"{summary[0].upper()}{summary[1:]}."
        action.add_argument("target", metavar=TARGET, help=TARGET_HELP)
        _configure_action(action, name)


def _configure_action(action: ArgumentParser, name: str) -> None:
    call: dict[str, Any] = {"metavar": "CALL", "help": "the id of a call or its task, the start of one, or `last`"}
    if name == "ls":
        listed = ", ".join(STATES)
        action.add_argument("--state", action="append", choices=STATES, metavar="STATE", help=listed)
        action.add_argument(
            "--limit", type=int, default=_LIMIT, metavar="N", help="the most tasks; default: %(default)s"
        )
    elif name == "show":
        action.add_argument("call", **call)
        add_reveal(action)
    elif name in ("cancel", "retry"):
        action.add_argument("calls", nargs="+", **call)
        add_audit(action)
    if name == "retry":
        add_even_once(action)
    if name in ("ls", "show"):
        add_json(action)


async def _list(shelf: Shelf, arguments: Namespace) -> int:
    from roundtrip.cli.trace.terminal import Column, Screen
    from roundtrip.machine.tasks import TaskState

    if arguments.limit < 1:
        raise CommandFailed(f"--limit must be at least 1, got {arguments.limit}")
    states = [TaskState(state) for state in arguments.state or ()]
    found = await shelf.book.store.list(limit=arguments.limit, states=states)
    if arguments.json:
        print(json.dumps([_as_data(one) for one in found], indent=2))
        return 0
    columns = (
        Column("call"),
        Column("tool", folds=True),
        Column("state"),
        Column("created", drop=2),
        Column("changed", drop=1),
        Column("next", drop=3),
    )
    now = time.time()
    Screen().table(columns, [_row(one, now) for one in found])
    return 0


def _row(one: "TaskSummary", now: float) -> list[str]:
    from roundtrip.trace.explaining.wording import distance_text

    following = distance_text(one.due - now) if is_due(one.state) else "-"
    return [
        one.call_id,
        one.tool,
        one.state.value,
        distance_text(one.created - now),
        distance_text(one.updated - now),
        following,
    ]


def _as_data(one: "TaskSummary") -> dict[str, Any]:
    return {**one._asdict(), "state": one.state.value, "due": one.due if is_due(one.state) else None}


async def _show(shelf: Shelf, arguments: Namespace) -> int:
    call_id = await found_call(shelf, arguments.call)
    shown = await stored_facts(shelf, call_id, reveal=arguments.reveal)
    if shown is None:
        raise CommandFailed(f"there is no task of call {call_id}")
    print(json.dumps(shown, indent=2)) if arguments.json else print_facts(shown)
    return 0 if shown.get("readable", True) else 1


async def _act(shelf: Shelf, arguments: Namespace) -> int:
    return await act_on_each(shelf, arguments, arguments.calls, ())


async def _rekey(shelf: Shelf, arguments: Namespace) -> int:
    from roundtrip.server.tasks.content import ContentUnreadable

    del arguments
    renewed = kept = unreadable = 0
    async for entry in shelf.operations.scan():
        try:
            if await shelf.operations.renew_key(entry):
                renewed += 1
            else:
                kept += 1
        except ContentUnreadable:
            unreadable += 1
    print(f"{renewed} encrypted with the newest key ({shelf.book.seal.hint}), {kept} were already")
    if unreadable:
        print(f"{unreadable} could not be read: this server does not have their key")
    return 1 if unreadable else 0


_RUNS: Final = {"ls": _list, "show": _show, "cancel": _act, "retry": _act, "rekey": _rekey}


def _run(arguments: Namespace) -> int:
    shelf = load_shelf(arguments.target)
    return using_store(lambda: _RUNS[arguments.action](shelf, arguments))


COMMAND = Command(_DESCRIPTION, _configure, _run, EXIT_CODES)
