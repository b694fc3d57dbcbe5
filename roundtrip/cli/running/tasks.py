"""Run `roundtrip tasks`."""

import json
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.stored_calls import (
    Shelf,
    act_on_each,
    found_call,
    is_due,
    load_shelf,
    print_facts,
    stored_facts,
    using_store,
)
from roundtrip.cli.trace.terminal import Column, Screen
from roundtrip.machine.tasks import TaskState
from roundtrip.server.tasks.content import ContentUnreadable
from roundtrip.trace.explaining.wording import distance_text

if TYPE_CHECKING:
    from roundtrip.ledger.tasks import TaskSummary

__all__ = ["run"]


async def _list(shelf: Shelf, arguments: Namespace) -> int:
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


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    shelf = load_shelf(arguments.target)
    return using_store(lambda: _RUNS[arguments.action](shelf, arguments))
