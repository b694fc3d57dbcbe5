"""Run `roundtrip calls`: list and show calls, act on a server's stored calls, and log each action."""

import json
import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import anyio

from roundtrip.approvals.rules import records_of, state_of
from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.commands.calls import TEST_USER, view
from roundtrip.cli.running.loading import load_attached, require_shared_ledger
from roundtrip.cli.trace.calls import find_call, open_calls
from roundtrip.cli.trace.showing import show
from roundtrip.cli.trace.sources import LAST, present
from roundtrip.cli.trace.terminal import Column, Screen
from roundtrip.client.fields import read_typed
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import ENDED, StoredState
from roundtrip.ledger.tasks import CallEntry, EntrySummary
from roundtrip.once.rekeying import IntentEntries
from roundtrip.questions.fields import FieldInvalid, FieldKind, fields_of
from roundtrip.server.attach import Attached
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import CallNotChanged, ContentUnreadable
from roundtrip.stored.operations import CallOperations, LoggedOperations
from roundtrip.text import printable
from roundtrip.trace.explaining.stories import story
from roundtrip.trace.explaining.wording import clock_text, distance_text
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.names import OPERATOR_LOG_VARIABLE, TRACE_VARIABLE
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable, operator_log_path, user_of_system

T = TypeVar("T")

_FORMER_VARIABLE: Final = "ROUNDTRIP_AUDIT"
_OUTCOMES: Final = {
    "cancel": "cancelled",
    "retry": "due again",
    "expire": "expired",
    "remind": "groups notified",
}


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.action == "show" and arguments.server:
        return _show_stored(arguments)
    if arguments.action == "show" and arguments.reveal:
        raise CommandFailed("--reveal shows the values of stored calls; name their server with --server")
    if arguments.action in ("ls", "show"):
        return view(arguments.action).run(arguments)
    if arguments.action == "answer":
        return _answer(arguments)
    if arguments.action == "stored":
        return _with_stored_calls(arguments, _list_stored)
    if arguments.action == "rekey":
        return _rekey(arguments)
    first, *words = arguments.calls
    files = [word for word in words if os.path.exists(word)]
    calls = [first, *(word for word in words if word not in files)]
    if unknown_words := [word for word in calls if "/" in word or word.endswith(".jsonl")]:
        # Fail before the first action, because a misspelled transcript could lead to the wrong operator log.
        raise CommandFailed(f"{unknown_words[0]!r} must be a call id or an existing transcript; check the path")
    if LAST in calls and (files or os.environ.get(TRACE_VARIABLE)):
        # Here, `last` means the same call as in `ls` and `show`.
        traced = open_calls(arguments, files or [os.environ[TRACE_VARIABLE]])
        newest = next(traced.rows(CallFilter()), None)
        calls = [newest["call"] if word == LAST and newest is not None else word for word in calls]
    return _with_stored_calls(arguments, partial(_act_on, calls=calls, transcripts=files))


# Stored calls.


class _CallAccess(NamedTuple):
    """Access to a server's stored calls."""

    book: CallBook
    operations: CallOperations


def _with_stored_calls(arguments: Namespace, work: Callable[[_CallAccess, Namespace], Awaitable[T]]) -> T:
    """Load the server that the arguments name, and run an asynchronous function on its stored calls.

    Raises:
        CommandFailed: The server cannot be loaded, its stored calls cannot be read, or the operator log cannot be
            written.
    """
    return _with_calls_of(load_attached(arguments.server), lambda access: work(access, arguments))


def _with_calls_of(server: Attached, work: Callable[[_CallAccess], Awaitable[T]]) -> T:
    """Run an asynchronous function on a server's stored calls. See `_with_stored_calls`."""
    service = server.call_service
    if service is None:
        raise CommandFailed(
            "the server stores no calls: it has no tool with task=True, pages=, channels= or approvals="
        )
    require_shared_ledger(server)
    with report_errors(LedgerDown, OperatorLogUnwritable):
        return anyio.run(work, _CallAccess(service.book, CallOperations(service.book)))


async def _find_call(access: _CallAccess, text: str) -> str:
    """Return the id of the stored call to which a text refers.

    Raises:
        CommandFailed: No stored call matches, or several match.
    """
    call_id = await access.operations.find(text)
    if call_id is None:
        raise CommandFailed(
            f"{text!r} matches no stored call, or several; give a full id from `roundtrip calls stored`. A call that "
            "has ended may no longer be stored"
        )
    return call_id


def operator_log_of(arguments: Namespace, transcripts: Sequence[str]) -> Path | None:
    """Return the operator log's path. See `operator_log_path`.

    Raises:
        CommandFailed: The operator log is named only by a variable from release 0.2, which this release ignores.
    """
    if _FORMER_VARIABLE in os.environ and OPERATOR_LOG_VARIABLE not in os.environ and not arguments.operator_log:
        raise CommandFailed(
            f"nothing was done: {_FORMER_VARIABLE} is now named {OPERATOR_LOG_VARIABLE}; set the new variable, and "
            "rename the audit.jsonl of earlier releases to operators.jsonl"
        )
    return operator_log_path(arguments.operator_log, transcripts, os.environ)


def _logged_operations(access: _CallAccess, arguments: Namespace, transcripts: Sequence[str]) -> LoggedOperations:
    """Return operations that log each action, with this process's user as the operator. If there is no operator log,
    print a warning.

    Args:
        access: The stored calls.
        arguments: The command's arguments.
        transcripts: The transcripts that the user named.
    """
    path = operator_log_of(arguments, transcripts)
    if path is None:
        note = f"this action is not logged; name an operator log with --operator-log, or set {OPERATOR_LOG_VARIABLE}"
        print(f"roundtrip {arguments.command}: {note}", file=sys.stderr)
    return LoggedOperations(access.operations, OperatorLog(path, program="command", by=user_of_system()))


async def _act_on(access: _CallAccess, arguments: Namespace, calls: Sequence[str], transcripts: Sequence[str]) -> int:
    """Perform the action on each call, and print the outcomes. Return the exit code.

    Raises:
        OperatorLogUnwritable: The operator log cannot be written.
        LedgerDown: The store is unavailable.
    """
    operations = _logged_operations(access, arguments, transcripts)
    even_once: bool = getattr(arguments, "even_once", False)
    failed = 0
    for text in calls:
        try:
            call_id = await _find_call(access, text)
            await operations.act(call_id, arguments.action, even_once=even_once)
        except (CommandFailed, CallNotChanged) as error:
            failed += 1
            print(f"{printable(text)}: {error}")
        else:
            print(f"{call_id}: {_OUTCOMES[arguments.action]}")
    return 1 if failed else 0


async def _list_stored(access: _CallAccess, arguments: Namespace) -> int:
    states = [StoredState(state) for state in arguments.state or ()]
    entries = await access.book.store.list(limit=arguments.limit, states=states)
    columns = (Column("call"), Column("tool", folds=True), Column("state"))
    columns += (Column("created", drop=2), Column("changed", drop=1), Column("next", drop=3))
    now = time.time()
    rows = [_row(entry, now) for entry in entries]
    present(arguments, lambda: [*map(_as_data, entries)], lambda screen: screen.table(columns, rows) if rows else None)
    if not rows:
        print("roundtrip calls: there is no stored call to list", file=sys.stderr)
    return 0


def _row(entry: EntrySummary, now: float) -> list[str]:
    created, updated = distance_text(entry.created - now), distance_text(entry.updated - now)
    next_due = distance_text(entry.due - now) if _is_due(entry.state) else "-"
    return [entry.call_id, entry.tool, entry.state.value, created, updated, next_due]


def _as_data(entry: EntrySummary) -> dict[str, Any]:
    return {**entry._asdict(), "state": entry.state.value, "due": entry.due if _is_due(entry.state) else None}


def _rekey(arguments: Namespace) -> int:
    """Seal all stored calls, and all entries of intents, with the newest key."""
    server, left = load_attached(arguments.server), 0
    if server.call_service is not None or not server.has_intents:
        left = _with_calls_of(server, _rekey_calls)
    require_shared_ledger(server)
    entries = IntentEntries(server.parts)
    if entries.lister is None and server.has_intents:
        print(
            f"intents: not encrypted again, because the ledger ({type(entries.ledger).__name__}) cannot list entries; "
            "before you remove an old key, wait until the longest keep= has passed since it was last the newest key"
        )
        return 1
    with report_errors(LedgerDown):
        return 1 if anyio.run(_rekey_intents, entries) or left else 0


async def _rekey_calls(access: _CallAccess) -> int:
    """Seal all stored calls with the newest key. Return how many could not be read."""
    counts = Counter[str]()
    async for entry in access.operations.scan():
        try:
            counts["renewed" if await access.operations.renew_key(entry) else "current"] += 1
        except ContentUnreadable:
            counts["unreadable"] += 1
    _print_counts("", counts, access.book.seal.hint)
    return counts["unreadable"]


async def _rekey_intents(entries: IntentEntries) -> int:
    """Seal the ledger's entries of intents with the newest key. Return how many still need another key."""
    counts = Counter([await entries.renew_key(entry) async for page in entries.pages() for entry in page])
    if counts:
        _print_counts("intents: ", counts, entries.hint)
    if counts["held"]:
        print(f"intents: {counts['held']} are in use; run the command again when their calls have ended or asked")
    return counts["held"] + counts["unreadable"]


def _print_counts(what: str, counts: Mapping[str, int], key: str) -> None:
    print(f"{what}{counts['renewed']} now encrypted with the newest key ({key}), {counts['current']} already were")
    if counts["unreadable"]:
        print(f"{what}{counts['unreadable']} could not be read: this server does not have their key")


def _show_stored(arguments: Namespace) -> int:
    call, facts = _with_stored_calls(arguments, _load_call)
    if call is None and facts is None:
        raise CommandFailed(f"there is no stored call {arguments.call}")

    def data() -> dict[str, Any]:
        return {**(story(call) if call is not None else {}), "stored": facts}

    def draw(screen: Screen) -> None:
        if call is not None:
            show(call, screen, now=time.time())
            screen.gap()
        if facts is None:
            screen.line("this server has not stored the call, or no longer stores it")
        else:
            _draw_facts(facts, screen)

    present(arguments, data, draw)
    return 0 if facts is None or facts.get("readable", True) else 1


async def _load_call(access: _CallAccess, arguments: Namespace) -> tuple[TracedCall | None, Mapping[str, Any] | None]:
    """Return a call from the transcripts, and what the store records about it. Either may be None."""
    call: TracedCall | None = None
    if arguments.files or os.environ.get(TRACE_VARIABLE):
        try:
            call = find_call(arguments)
        except CommandFailed:
            # Continue if the call is stored, because a stored call may outlive its transcripts.
            if await access.operations.find(arguments.call) is None:
                raise
    call_id = call.id if call is not None else await _find_call(access, arguments.call)
    return call, await _stored_facts(access, call_id, reveal=arguments.reveal)


def _is_due(state: StoredState) -> bool:
    """Return True if a task in this state continues by itself when it is due. Return False if the task waits for a user
    or has ended.
    """
    return state is not StoredState.ASKING and state not in ENDED


async def _stored_facts(access: _CallAccess, call_id: str, *, reveal: bool) -> dict[str, Any] | None:
    """Return what the store records about a call; None if the call is not stored.

    Args:
        access: The stored calls.
        call_id: The call's id.
        reveal: True to include values, not only names and times.
    """
    entry, now = await access.book.store.load(call_id)
    if entry is None:
        return None
    entry.advance(now)
    facts = _facts(entry, now)
    try:
        content = access.book.seal.read(entry.content, call_id)
        steps = [name for _, name, _ in access.book.seal.notes(entry)]
    except ContentUnreadable:
        return facts | {"readable": False}
    journal = access.book.read_journal(content)
    facts |= {
        "asking": list(content.asked.questions),
        "waiting for": content.waits,
        "steps": [name for name in dict.fromkeys([*journal.computed, *steps]) if not name.startswith("~")],
    }
    if records := records_of(content):
        facts["approvals"] = [_approval(record, is_over=entry.has_ended, reveal=reveal) for record in records]
    if reveal:
        facts |= {
            "principal": content.origin.principal,
            "status message": content.message,
            "arguments": content.origin.arguments,
            "questions": content.asked.questions,
            "answers": content.asked.answers,
            "signals": content.signals,
            "result": content.result,
            "error": content.error,
        }
    return facts


def _approval(record: Mapping[str, Any], *, is_over: bool, reveal: bool) -> dict[str, Any]:
    """Return an approval's facts. The message, approver and reason are included only with `reveal`, because they are
    values.
    """
    decision: Mapping[str, Any] = record["decision"] or {}
    facts: dict[str, Any] = {"name": record["name"], "by": record["by"], "state": state_of(record, is_over=is_over)}
    facts |= {"opened": record["opened"], "until": record["until"], "decided": decision.get("when")}
    if reveal:
        facts |= {"message": record["message"], "who": decision.get("who"), "reason": decision.get("reason")}
    return facts


def _facts(entry: CallEntry, now: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"call": entry.call_id, "tool": entry.tool, "state": entry.state.value}
    due = entry.due if _is_due(entry.state) else None
    facts |= {"created": entry.created, "updated": entry.updated, "due": due, "expires": entry.expires}
    if entry.state is StoredState.RUNNING:
        facts |= {"worker": entry.holder, "lease ends": entry.due}
    return facts | {"leases": entry.epoch, "exactly once": entry.runs_once, "deaths of workers": entry.deaths}


def _draw_facts(facts: Mapping[str, Any], screen: Screen) -> None:
    """Print facts as text. Each fact is one line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        if value is not None and value != []:
            screen.line((f"{name:{width}}  ", "bold"), _text(name, value))


def _approval_text(facts: Mapping[str, Any]) -> str:
    """Describe an approval, as in `budget by finance: approved 2026-11-26 10:15:02 by fred`."""
    decided = f" {clock_text(facts['decided'])}" if facts["decided"] is not None else ""
    until = f" until {clock_text(facts['until'])}" if facts["state"] == "pending" else ""
    who = f" by {facts['who']}" if facts.get("who") else ""
    reason = f" ({facts['reason']})" if facts.get("reason") else ""
    message = f", {facts['message']!r}" if facts.get("message") else ""
    return f"{facts['name']} by {facts['by']}{message}: {facts['state']}{decided}{until}{who}{reason}"


def _text(name: str, value: Any) -> str:
    """Return a fact as text. If it is a float, show it as a time."""
    if isinstance(value, float):
        return clock_text(value)
    if name == "approvals":
        return "; ".join(_approval_text(approval) for approval in value)
    return value if isinstance(value, str) else json.dumps(value)


# Answers from test users.


def _answer(arguments: Namespace) -> int:
    if not arguments.test_user:
        raise CommandFailed(
            f"`answer` replies on behalf of the call's user, which is allowed only on development servers; if the "
            f"users of {arguments.server!r} are test users, add {TEST_USER}"
        )
    return _with_stored_calls(arguments, _answer_one)


async def _answer_one(access: _CallAccess, arguments: Namespace) -> int:
    operations = _logged_operations(access, arguments, arguments.files)
    try:
        call_id = await _find_call(access, arguments.call)
        if arguments.value in (":decline", ":cancel"):
            response: dict[str, Any] = {"action": arguments.value[1:]}
        else:
            # Ignore the error if no form is open: the `answer` call below raises it again, and also writes it to the
            # operator log.
            form: Mapping[str, Any] = {}
            with suppress(CallNotChanged):
                form = await access.operations.open_form(call_id, arguments.name)
            response = {"action": "accept", "content": _content(form, arguments.value)}
        await operations.answer(call_id, arguments.name, response)
    except (CommandFailed, CallNotChanged) as error:
        print(f"{printable(arguments.call)}: {error}")
        return 1
    print(f"{call_id}: answered")
    return 0


def _content(form: Mapping[str, Any], value: str) -> Any:
    """Return an answer's content. If a form has one field, the field's bare value is enough; other forms need an
    object.
    """
    try:
        data: Any = json.loads(value)
    except (ValueError, RecursionError):
        data = None
    fields = fields_of(form)
    empty: dict[str, Any] = {}
    if isinstance(data, dict) or len(fields) != 1:
        return empty if data is None else cast("Any", data)
    (field,) = fields
    if field.kind is FieldKind.SEVERAL and isinstance(data, list):
        return {field.name: cast("Any", data)}
    try:
        is_given, typed = read_typed(field, value)
    except FieldInvalid:
        # Keep an invalid value, because the store checks the answer and reports the problem.
        return {field.name: value if data is None else data}
    return {field.name: typed} if is_given else empty
