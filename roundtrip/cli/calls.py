"""`roundtrip calls`: list and show calls, and act on those that are stored."""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP
from roundtrip.cli.parsing import OptionsAnywhere, add_files
from roundtrip.cli.stored_calls import (
    EXIT_CODES,
    Shelf,
    act_on_each,
    add_audit,
    add_even_once,
    add_reveal,
    audited,
    found_call,
    load_shelf,
    print_facts,
    stored_facts,
    using_store,
)
from roundtrip.cli.trace.calls import find_call, open_calls
from roundtrip.cli.trace.sources import LAST, named_files, present
from roundtrip.trace.writing.names import TRACE_VARIABLE

if TYPE_CHECKING:
    from roundtrip.cli.trace.terminal import Screen
    from roundtrip.trace.reading.calls import TracedCall

__all__ = ["COMMAND"]

_DESCRIPTION: Final = """\
Look at the calls of transcripts, and act on those that a server stores. The server is loaded for its ledger, its keys
and its on_pending, and serves no requests. Each action is a line of the audit log, and an action that cannot be logged
is not done."""

_ACTIONS: Final = {
    "ls": "list the calls of transcripts, as `roundtrip trace ls` does",
    "show": "show one call, as `roundtrip trace show` does, and what its server stores of it",
    "cancel": "cancel calls, as their clients could",
    "retry": "let workers continue lost calls behind their stored steps",
    "expire": "end the life of calls now, with their pending approvals",
    "remind": "notify the groups of pending approvals again, by the server's on_pending, in this process",
    "answer": "answer a question of a call on a development server, as a test user",
}
_TEST_USER: Final = "--test-user"


def _configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, parser_class=OptionsAnywhere
    )
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary)
        action.description = f"{summary[0].upper()}{summary[1:]}."
        _configure_action(action, name)


def _configure_action(action: ArgumentParser, name: str) -> None:
    if name in ("ls", "show"):
        _view(name).configure(action)
        if name == "show":
            action.add_argument("--server", metavar=TARGET, help=f"also show what this server stores; {TARGET_HELP}")
            add_reveal(action)
        return
    call: dict[str, Any] = {"metavar": "ID", "help": "the id of a call or its task, the start of one, or `last`"}
    if name == "answer":
        action.add_argument("call", **call)
        action.add_argument("key", metavar="KEY", help="the name of the question")
        help = "the value of its only field, or JSON of all fields; `:decline` or `:cancel`"
        action.add_argument("value", metavar="VALUE", help=help)
        add_files(action)
        action.add_argument(
            _TEST_USER, action="store_true", help="required: the server has test users only, for whom you may answer"
        )
    else:
        action.add_argument("calls", nargs="+", metavar="ID", help=f"{call['help']}; then transcripts, as FILE")
    if name == "retry":
        add_even_once(action)
    action.add_argument("--server", metavar=TARGET, required=True, help=TARGET_HELP)
    add_audit(action)


def _view(name: str) -> Command:
    # Imported here, as actions draw no views.
    from roundtrip.cli.trace import listing, showing

    return {**listing.COMMANDS, **showing.COMMANDS}[name]


def _run(arguments: Namespace) -> int:
    if arguments.action == "show" and arguments.server:
        return _show_stored(arguments)
    if arguments.action in ("ls", "show"):
        arguments.files = _with_audit_log(named_files(arguments))
        return _view(arguments.action).run(arguments)
    if arguments.action == "answer":
        return _answer(arguments)
    calls, files = _without_files(arguments.calls)
    if wrong := [word for word in calls if "/" in word or word.endswith(".jsonl")]:
        # Nothing is done before all words are understood: the directory says where the audit log is.
        raise CommandFailed(f"there is no file {wrong[0]!r}, and it is no id of a call")
    if LAST in calls and (files or os.environ.get(TRACE_VARIABLE)):
        # As the views of the same transcripts understand it.
        newest = open_calls(arguments, files or [os.environ[TRACE_VARIABLE]]).newest(1)
        calls = [newest[0].id if word == LAST and newest else word for word in calls]
    target: str = arguments.server
    shelf = load_shelf(target)
    return using_store(lambda: act_on_each(shelf, arguments, calls, files))


def _without_files(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the calls and the transcripts of some words, of which the first is a call."""
    files = [word for word in words[1:] if os.path.exists(word)]
    return [words[0], *(word for word in words[1:] if word not in files)], files


def _with_audit_log(names: list[str]) -> list[str]:
    """Return transcripts with the audit log of their calls, unless it is among them."""
    from roundtrip.trace.reading.transcripts import NoTranscript, files_of
    from roundtrip.trace.writing.audit import audit_path

    path = audit_path(None, names, os.environ)
    if path is None or not path.is_file():
        return names
    try:
        known = {file.resolve() for file in files_of(names)}
    except NoTranscript:
        # Reading the transcripts reports it.
        return names
    return names if path.resolve() in known else [*names, str(path)]


# What a server stores of a call.


def _show_stored(arguments: Namespace) -> int:
    from roundtrip.cli.trace.showing import show
    from roundtrip.trace.explaining.stories import story

    shelf = load_shelf(arguments.server)
    call, facts = using_store(lambda: _look(shelf, arguments))
    if call is None and facts is None:
        raise CommandFailed(f"there is no task of call {arguments.call}")

    def data() -> dict[str, Any]:
        return {**(story(call) if call is not None else {}), "stored": facts}

    def draw(screen: "Screen") -> None:
        import time

        if call is not None:
            show(call, screen, now=time.time())
            screen.gap()
        if facts is None:
            screen.line("the server stores nothing of it: it stored nothing, or the life of the call is over")
        screen.flush()

    present(arguments, data, draw)
    if facts is not None and not arguments.json:
        print_facts(facts)
    return 0 if facts is None or facts.get("readable", True) else 1


async def _look(shelf: Shelf, arguments: Namespace) -> "tuple[TracedCall | None, Mapping[str, Any] | None]":
    """Return a call as its transcripts have it, and what is stored of it."""
    call: TracedCall | None = None
    if arguments.files or os.environ.get(TRACE_VARIABLE):
        arguments.files = _with_audit_log(named_files(arguments))
        try:
            call = find_call(arguments)
        except CommandFailed:
            # Calls are stored for longer than transcripts are kept.
            if await shelf.operations.find(arguments.call) is None:
                raise
    call_id = call.id if call is not None else await found_call(shelf, arguments.call)
    return call, await stored_facts(shelf, call_id, reveal=arguments.reveal)


# Answers of test users.


def _answer(arguments: Namespace) -> int:
    if not arguments.test_user:
        raise CommandFailed(
            f"answer gives an answer in the name of the call's user, which is for development servers only; if the "
            f"users of {arguments.server!r} are test users, add {_TEST_USER}"
        )
    shelf = load_shelf(arguments.server)
    return using_store(lambda: _answer_one(shelf, arguments))


async def _answer_one(shelf: Shelf, arguments: Namespace) -> int:
    from roundtrip.safe_text import printable
    from roundtrip.server.tasks.operations import TaskNotChanged

    operations = audited(shelf, arguments, arguments.files)
    try:
        call_id = await found_call(shelf, arguments.call)
        response = _response(arguments.value)
        if response is None:
            # Without a form, the action is rejected, and logged.
            form: Mapping[str, Any] = {}
            with suppress(TaskNotChanged):
                form = await shelf.operations.open_form(call_id, arguments.key)
            response = {"action": "accept", "content": _content(form, arguments.value)}
        await operations.answer(call_id, arguments.key, response)
    except (CommandFailed, TaskNotChanged) as error:
        print(f"{printable(arguments.call)}: {error}")
        return 1
    print(f"{call_id}: answered")
    return 0


def _response(value: str) -> dict[str, Any] | None:
    return {"action": value[1:]} if value in (":decline", ":cancel") else None


def _content(form: Mapping[str, Any], value: str) -> Any:
    """Return the content of an answer: of a form with one field its value, of others an object."""
    from roundtrip.client.fields import read_typed
    from roundtrip.questions.fields import FieldInvalid, FieldKind, fields_of

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
        # The check of the answer says what does not fit.
        return {field.name: value if data is None else data}
    return {field.name: typed} if is_given else empty


COMMAND = Command(_DESCRIPTION, _configure, _run, EXIT_CODES)
