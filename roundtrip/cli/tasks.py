"""`roundtrip tasks`: list, show, cancel and retry stored tasks, and renew their keys."""

import asyncio
import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP, load_attached
from roundtrip.cli.parsing import OptionsAnywhere, add_json

if TYPE_CHECKING:
    from roundtrip.ledger.tasks import TaskEntry, TaskSummary
    from roundtrip.server.tasks.book import TaskBook
    from roundtrip.server.tasks.operations import TaskOperations

__all__ = ["COMMAND", "STATES"]

_DESCRIPTION: Final = """\
Look at the tasks that are stored in a server's ledger, and change them. The server is loaded for its ledger and its
keys, and runs nothing."""

_EPILOG: Final = """\
exit codes:
  0  done        1  some of the tasks could not be found, changed or read        2  not done; standard error has the
  reason"""

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


class _Shelf(NamedTuple):
    """The tasks of a server."""

    book: "TaskBook"
    operations: "TaskOperations"


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
        action.add_argument(
            "--reveal", action="store_true", help="also print arguments, questions, answers, messages and results"
        )
    elif name in ("cancel", "retry"):
        action.add_argument("calls", nargs="+", **call)
    if name == "retry":
        action.add_argument(
            "--even-once", action="store_true", help="also tasks whose body must not begin twice (exactly_once=True)"
        )
    if name in ("ls", "show"):
        add_json(action)


def _run(arguments: Namespace) -> int:
    from roundtrip.ledger.contract import LedgerDown, Reach
    from roundtrip.server.tasks.operations import TaskOperations

    server = load_attached(arguments.target)
    service = server.task_service
    if service is None:
        raise CommandFailed(
            "the server stores no calls: it has no tool with task=True, no pages=, no ladder= and no approvals="
        )
    if server.ledger.reach is Reach.PROCESS:
        raise CommandFailed(
            "the tasks of a MemoryLedger are in the memory of the process that made them; give the server a "
            "SqliteLedger, a RedisLedger or a PostgresLedger"
        )
    shelf = _Shelf(service.book, TaskOperations(service.book))
    try:
        return asyncio.run(_RUNS[arguments.action](shelf, arguments))
    except LedgerDown as error:
        raise CommandFailed(str(error)) from error


async def _list(shelf: _Shelf, arguments: Namespace) -> int:
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
    following = "-" if one.state.value in _NOT_DUE else _distance(one.due - now)
    return [
        one.call_id,
        one.tool,
        one.state.value,
        _distance(one.created - now),
        _distance(one.updated - now),
        following,
    ]


_NOT_DUE: Final = frozenset({"asking", "completed", "failed", "lost", "cancelled"})


def _distance(seconds: float) -> str:
    from roundtrip.trace.explaining.wording import duration_text

    text = duration_text(abs(seconds) * 1000)
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _as_data(one: "TaskSummary") -> dict[str, Any]:
    return {**one._asdict(), "state": one.state.value}


async def _show(shelf: _Shelf, arguments: Namespace) -> int:
    from roundtrip.server.tasks.content import ContentUnreadable

    call_id = await _found(shelf, arguments.call)
    entry, now = await shelf.book.store.load(call_id)
    if entry is None:
        raise CommandFailed(f"there is no task of call {call_id}")
    entry.advance(now)
    shown = _facts(entry, now)
    try:
        content = shelf.book.seal.read(entry.content, call_id)
        steps = [shelf.book.seal.open(note, call_id, "note")[1] for note in entry.notes]
    except ContentUnreadable:
        shown["readable"] = False
        _print(shown, arguments)
        return 1
    journal = shelf.book.read_journal(content)
    shown |= {
        "asks": list(content.questions),
        "waits for": content.waits,
        "steps": [*(name for name in journal.computed if not name.startswith("~")), *steps],
    }
    if content.approvals:
        shown["approvals"] = [_approval(record, reveal=arguments.reveal) for record in content.approvals]
    if arguments.reveal:
        shown |= {
            "principal": content.principal,
            "status message": content.message,
            "arguments": content.arguments,
            "questions": content.questions,
            "answers": content.answers,
            "signals": content.signals,
            "result": content.result,
            "error": content.error,
        }
    _print(shown, arguments)
    return 0


def _approval(record: Mapping[str, Any], *, reveal: bool) -> dict[str, Any]:
    """Return an approval for an audit. The wording, the person and the reason are values, and shown as such."""
    made: Mapping[str, Any] = record["decision"] or {}
    state = made.get("outcome") or ("withdrawn" if record["withdrawn"] is not None else "pending")
    shown: dict[str, Any] = {"name": record["name"], "by": record["by"], "state": state}
    shown |= {"opened": record["opened"], "until": record["until"], "decided": made.get("when")}
    if reveal:
        shown |= {"message": record["message"], "who": made.get("who"), "reason": made.get("reason")}
    return shown


def _facts(entry: "TaskEntry", now: float) -> dict[str, Any]:
    from roundtrip.machine.tasks import TaskState

    shown: dict[str, Any] = {"call": entry.call_id, "tool": entry.tool, "state": entry.state.value}
    shown |= {"created": entry.created, "updated": entry.updated, "due": entry.due, "expires": entry.expires}
    if entry.state is TaskState.RUNNING:
        shown |= {"worker": entry.holder, "lease ends": entry.due}
    return shown | {"epoch": entry.epoch, "runs once": entry.runs_once, "deaths of workers": max(0, entry.tries - 1)}


def _print(shown: dict[str, Any], arguments: Namespace) -> None:
    from roundtrip.cli.trace.terminal import Screen

    if arguments.json:
        print(json.dumps(shown, indent=2))
        return
    screen, width = Screen(), max(map(len, shown))
    for name, value in shown.items():
        if value is not None and value != []:
            screen.line((f"{name:{width}}  ", "bold"), _text(name, value))


def _text(name: str, value: Any) -> str:
    """Return a fact in words; times are floats."""
    from roundtrip.trace.explaining.wording import clock_text

    if isinstance(value, float):
        return clock_text(value)
    if name == "approvals":
        value = [{what: _text(what, one) for what, one in made.items() if one is not None} for made in value]
    return value if isinstance(value, str) else json.dumps(value)


async def _cancel(shelf: _Shelf, arguments: Namespace) -> int:
    return await _each(shelf, arguments, shelf.operations.cancel, "cancelled")


async def _retry(shelf: _Shelf, arguments: Namespace) -> int:
    retry = partial(shelf.operations.retry, even_once=arguments.even_once)
    return await _each(shelf, arguments, retry, "is due again")


async def _each(shelf: _Shelf, arguments: Namespace, work: Callable[[str], Awaitable[Any]], done: str) -> int:
    from roundtrip.safe_text import printable
    from roundtrip.server.tasks.operations import TaskNotChanged

    failed = 0
    for text in arguments.calls:
        try:
            call_id = await _found(shelf, text)
            await work(call_id)
        except (CommandFailed, TaskNotChanged) as error:
            failed += 1
            print(f"{printable(text)}: {error}")
        else:
            print(f"{call_id}: {done}")
    return 1 if failed else 0


async def _rekey(shelf: _Shelf, arguments: Namespace) -> int:
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


async def _found(shelf: _Shelf, text: str) -> str:
    call_id = await shelf.operations.find(text)
    if call_id is None:
        raise CommandFailed(f"no task, or several, begin with {text!r}; `roundtrip tasks ls` lists them")
    return call_id


_RUNS: Final = {"ls": _list, "show": _show, "cancel": _cancel, "retry": _retry, "rekey": _rekey}

COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)
