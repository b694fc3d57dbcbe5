"""Load the stored calls of a server for commands: find, show and change them, and log each action."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import anyio

from roundtrip.approvals.rules import records_of, state_of
from roundtrip.cli.command import CommandFailed, reported
from roundtrip.cli.running.loading import load_attached
from roundtrip.cli.trace.terminal import Screen
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.machines import ENDED, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.acting import LoggedOperations
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallNotChanged, ContentUnreadable
from roundtrip.stored.operations import CallOperations
from roundtrip.text import printable
from roundtrip.trace.explaining.wording import clock_text
from roundtrip.trace.writing.names import OPERATOR_LOG_VARIABLE
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable, operator_log_path, user_of_system

T = TypeVar("T")

_FORMER_VARIABLE: Final = "ROUNDTRIP_AUDIT"
_DONE: Final = {
    "cancel": "cancelled",
    "retry": "is due again",
    "expire": "expired",
    "remind": "its groups were notified",
}


class Shelf(NamedTuple):
    """The stored calls of a server."""

    book: CallBook
    operations: CallOperations


def load_shelf(target: str) -> Shelf:
    """Load the stored calls of the server that a command line names.

    Raises:
        CommandFailed: There is no such server, or it stores no calls that another process can read.
    """
    server = load_attached(target)
    service = server.task_service
    if service is None:
        raise CommandFailed(
            "the server stores no calls: it has no tool with task=True, pages=, channels= or approvals="
        )
    if server.ledger.reach is Reach.PROCESS:
        raise CommandFailed(
            "the tasks of a MemoryLedger are in the memory of the process that made them; give the server a "
            "SqliteLedger, a RedisLedger or a PostgresLedger"
        )
    return Shelf(service.book, CallOperations(service.book))


def using_store(work: Callable[[], Awaitable[T]]) -> T:
    """Run asynchronous work on a store.

    Raises:
        CommandFailed: The store cannot be used, or the operator log cannot be written.
    """
    with reported(LedgerDown, OperatorLogUnwritable):
        return anyio.run(work)


async def found_call(shelf: Shelf, text: str) -> str:
    """Return the stored call that a text names.

    Raises:
        CommandFailed: There is none, or several.
    """
    call_id = await shelf.operations.find(text)
    if call_id is None:
        raise CommandFailed(
            f"the store has no call that begins with {text!r}, or more than one; give a whole id that "
            "`roundtrip calls stored` lists; a call that has ended may be forgotten"
        )
    return call_id


def operator_log_of(arguments: Namespace, transcripts: Sequence[str]) -> Path | None:
    """Return the file of the operator log; see `operator_log_path`.

    Raises:
        CommandFailed: Only the variable of release 0.2 names it, which nothing reads any more.
    """
    if _FORMER_VARIABLE in os.environ and OPERATOR_LOG_VARIABLE not in os.environ and not arguments.operator_log:
        raise CommandFailed(
            f"nothing was done: {_FORMER_VARIABLE} is named {OPERATOR_LOG_VARIABLE} now; set that, and rename the "
            "audit.jsonl of earlier releases to operators.jsonl"
        )
    return operator_log_path(arguments.operator_log, transcripts, os.environ)


def logged_operations(shelf: Shelf, arguments: Namespace, transcripts: Sequence[str]) -> LoggedOperations:
    """Return the operations for the user of this process; without a place for the operator log, say so.

    Args:
        shelf: The stored calls.
        arguments: The arguments of the command.
        transcripts: The transcripts that it names.
    """
    path = operator_log_of(arguments, transcripts)
    if path is None:
        note = f"this is in no operator log; name one with --operator-log, or set {OPERATOR_LOG_VARIABLE}"
        print(f"roundtrip {arguments.command}: {note}", file=sys.stderr)
    return LoggedOperations(shelf.operations, OperatorLog(path, program="command", by=user_of_system()))


async def act_on_each(shelf: Shelf, arguments: Namespace, calls: Sequence[str], transcripts: Sequence[str]) -> int:
    """Do the action of the arguments on each call, print the outcomes, and return the exit code.

    Raises:
        OperatorLogUnwritable: The operator log cannot be written.
        LedgerDown: The store cannot be used.
    """
    operations = logged_operations(shelf, arguments, transcripts)
    even_once: bool = getattr(arguments, "even_once", False)
    failed = 0
    for text in calls:
        try:
            call_id = await found_call(shelf, text)
            await operations.act(call_id, arguments.action, even_once=even_once)
        except (CommandFailed, CallNotChanged) as error:
            failed += 1
            print(f"{printable(text)}: {error}")
        else:
            print(f"{call_id}: {_DONE[arguments.action]}")
    return 1 if failed else 0


# Facts.


def is_due(state: StoredState) -> bool:
    """Return True if a task in a state goes on at its time, and not only when its user answers, or never."""
    return state is not StoredState.ASKING and state not in ENDED


async def stored_facts(shelf: Shelf, call_id: str, *, reveal: bool) -> dict[str, Any] | None:
    """Return what is stored of a call, by names; None if the store has no such call.

    Args:
        shelf: The stored calls.
        call_id: The call.
        reveal: True for values as well, and not only names and times.
    """
    entry, now = await shelf.book.store.load(call_id)
    if entry is None:
        return None
    entry.advance(now)
    shown = _facts(entry, now)
    try:
        content = shelf.book.seal.read(entry.content, call_id)
        steps = [name for _, name, _ in shelf.book.seal.notes(entry)]
    except ContentUnreadable:
        return shown | {"readable": False}
    journal = shelf.book.read_journal(content)
    shown |= {
        "asks": list(content.asked.questions),
        "waits for": content.waits,
        "steps": [name for name in dict.fromkeys([*journal.computed, *steps]) if not name.startswith("~")],
    }
    if records := records_of(content):
        shown["approvals"] = [_approval(one, is_over=entry.has_ended, reveal=reveal) for one in records]
    if reveal:
        shown |= {
            "principal": content.origin.principal,
            "status message": content.message,
            "arguments": content.origin.arguments,
            "questions": content.asked.questions,
            "answers": content.asked.answers,
            "signals": content.signals,
            "result": content.result,
            "error": content.error,
        }
    return shown


def _approval(record: Mapping[str, Any], *, is_over: bool, reveal: bool) -> dict[str, Any]:
    """Return an approval for the record. The wording, the person and the reason are values, and shown as such."""
    made: Mapping[str, Any] = record["decision"] or {}
    shown: dict[str, Any] = {"name": record["name"], "by": record["by"], "state": state_of(record, is_over=is_over)}
    shown |= {"opened": record["opened"], "until": record["until"], "decided": made.get("when")}
    if reveal:
        shown |= {"message": record["message"], "who": made.get("who"), "reason": made.get("reason")}
    return shown


def _facts(entry: CallEntry, now: float) -> dict[str, Any]:
    shown: dict[str, Any] = {"call": entry.call_id, "tool": entry.tool, "state": entry.state.value}
    due = entry.due if is_due(entry.state) else None
    shown |= {"created": entry.created, "updated": entry.updated, "due": due, "expires": entry.expires}
    if entry.state is StoredState.RUNNING:
        shown |= {"worker": entry.holder, "lease ends": entry.due}
    return shown | {"epoch": entry.epoch, "runs once": entry.runs_once, "deaths of workers": entry.deaths}


def draw_facts(shown: Mapping[str, Any], screen: Screen) -> None:
    """Print facts for people, one a line."""
    width = max(map(len, shown))
    for name, value in shown.items():
        if value is not None and value != []:
            screen.line((f"{name:{width}}  ", "bold"), _text(name, value))


def _approval_text(shown: Mapping[str, Any]) -> str:
    """Return an approval in words: `budget by finance: approved 2026-11-26 10:15:02 by fred`."""
    decided = f" {clock_text(shown['decided'])}" if shown["decided"] is not None else ""
    until = f" until {clock_text(shown['until'])}" if shown["state"] == "pending" else ""
    who = f" by {shown['who']}" if shown.get("who") else ""
    reason = f" ({shown['reason']})" if shown.get("reason") else ""
    message = f", {shown['message']!r}" if shown.get("message") else ""
    return f"{shown['name']} by {shown['by']}{message}: {shown['state']}{decided}{until}{who}{reason}"


def _text(name: str, value: Any) -> str:
    """Return a fact in words; times are floats."""
    if isinstance(value, float):
        return clock_text(value)
    if name == "approvals":
        return "; ".join(_approval_text(made) for made in value)
    return value if isinstance(value, str) else json.dumps(value)
