"""Run `roundtrip calls`."""

import json
import os
import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from roundtrip.cli.calls import TEST_USER, view
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.stored_calls import (
    Shelf,
    act_on_each,
    draw_facts,
    found_call,
    is_due,
    load_shelf,
    logged_operations,
    stored_facts,
    using_store,
)
from roundtrip.cli.trace.calls import find_call, open_calls
from roundtrip.cli.trace.showing import show
from roundtrip.cli.trace.sources import LAST, present
from roundtrip.cli.trace.terminal import Column, Screen
from roundtrip.client.fields import read_typed
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import EntrySummary
from roundtrip.questions.fields import FieldInvalid, FieldKind, fields_of
from roundtrip.stored.content import CallNotChanged, ContentUnreadable
from roundtrip.text import printable
from roundtrip.trace.explaining.stories import story
from roundtrip.trace.explaining.wording import distance_text
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.names import TRACE_VARIABLE


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    if arguments.action == "show" and arguments.server:
        return _show_stored(arguments)
    if arguments.action == "show" and arguments.reveal:
        raise CommandFailed("--reveal shows what a server stores; name the server with --server")
    if arguments.action in ("ls", "show"):
        return view(arguments.action).run(arguments)
    if arguments.action == "answer":
        return _answer(arguments)
    if arguments.action in ("stored", "rekey"):
        shelf = load_shelf(arguments.server)
        return using_store(lambda: _rekey(shelf) if arguments.action == "rekey" else _list_stored(shelf, arguments))
    first, *words = arguments.calls
    files = [word for word in words if os.path.exists(word)]
    calls = [first, *(word for word in words if word not in files)]
    if wrong := [word for word in calls if "/" in word or word.endswith(".jsonl")]:
        # Nothing is done before all words are understood: the directory says where the operator log is.
        raise CommandFailed(f"there is no file {wrong[0]!r}, and it is no id of a call")
    if LAST in calls and (files or os.environ.get(TRACE_VARIABLE)):
        # As the views of the same transcripts understand it.
        traced = open_calls(arguments, files or [os.environ[TRACE_VARIABLE]])
        newest = next(traced.rows(CallFilter()), None)
        calls = [newest["call"] if word == LAST and newest is not None else word for word in calls]
    shelf = load_shelf(arguments.server)
    return using_store(lambda: act_on_each(shelf, arguments, calls, files))


# What a server stores.


async def _list_stored(shelf: Shelf, arguments: Namespace) -> int:
    states = [StoredState(state) for state in arguments.state or ()]
    found = await shelf.book.store.list(limit=arguments.limit, states=states)
    columns = (
        Column("call"),
        Column("tool", folds=True),
        Column("state"),
        Column("created", drop=2),
        Column("changed", drop=1),
        Column("next", drop=3),
    )
    now = time.time()
    rows = [_row(one, now) for one in found]
    present(arguments, lambda: [_as_data(one) for one in found], lambda screen: screen.table(columns, rows))
    return 0


def _row(one: EntrySummary, now: float) -> list[str]:
    following = distance_text(one.due - now) if is_due(one.state) else "-"
    return [
        one.call_id,
        one.tool,
        one.state.value,
        distance_text(one.created - now),
        distance_text(one.updated - now),
        following,
    ]


def _as_data(one: EntrySummary) -> dict[str, Any]:
    return {**one._asdict(), "state": one.state.value, "due": one.due if is_due(one.state) else None}


async def _rekey(shelf: Shelf) -> int:
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


def _show_stored(arguments: Namespace) -> int:
    shelf = load_shelf(arguments.server)
    call, facts = using_store(lambda: _look(shelf, arguments))
    if call is None and facts is None:
        raise CommandFailed(f"there is no task of call {arguments.call}")

    def data() -> dict[str, Any]:
        return {**(story(call) if call is not None else {}), "stored": facts}

    def draw(screen: Screen) -> None:
        if call is not None:
            show(call, screen, now=time.time())
            screen.gap()
        if facts is None:
            screen.line("the server stores nothing of it: it stored nothing, or the life of the call is over")
        else:
            draw_facts(facts, screen)

    present(arguments, data, draw)
    return 0 if facts is None or facts.get("readable", True) else 1


async def _look(shelf: Shelf, arguments: Namespace) -> tuple[TracedCall | None, Mapping[str, Any] | None]:
    """Return a call as its transcripts have it, and what is stored of it."""
    call: TracedCall | None = None
    if arguments.files or os.environ.get(TRACE_VARIABLE):
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
            f"users of {arguments.server!r} are test users, add {TEST_USER}"
        )
    shelf = load_shelf(arguments.server)
    return using_store(lambda: _answer_one(shelf, arguments))


async def _answer_one(shelf: Shelf, arguments: Namespace) -> int:
    operations = logged_operations(shelf, arguments, arguments.files)
    try:
        call_id = await found_call(shelf, arguments.call)
        if arguments.value in (":decline", ":cancel"):
            response: dict[str, Any] = {"action": arguments.value[1:]}
        else:
            # Without a form, the action is rejected, and logged.
            form: Mapping[str, Any] = {}
            with suppress(CallNotChanged):
                form = await shelf.operations.open_form(call_id, arguments.name)
            response = {"action": "accept", "content": _content(form, arguments.value)}
        await operations.answer(call_id, arguments.name, response)
    except (CommandFailed, CallNotChanged) as error:
        print(f"{printable(arguments.call)}: {error}")
        return 1
    print(f"{call_id}: answered")
    return 0


def _content(form: Mapping[str, Any], value: str) -> Any:
    """Return the content of an answer: of a form with one field its value, of others an object."""
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
