"""`roundtrip trace ls`: all calls, one on a line."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import add_files, add_json
from roundtrip.cli.trace.filters import add_filters, is_tool, matching
from roundtrip.cli.trace.sources import json_text, load, write_out
from roundtrip.cli.trace.terminal import STATE_STYLES, Column, Part, Screen
from roundtrip.safe_text import build_text
from roundtrip.trace.explaining.explanations import explain_rejection
from roundtrip.trace.explaining.stories import summary
from roundtrip.trace.explaining.wording import clock_text, count_text, duration_text
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import RejectedLine

__all__ = ["COMMAND"]

_COLUMNS: Final = (
    Column("call"),
    Column("when", drop=4),
    Column("tool", folds=True),
    Column("state"),
    Column("rounds", right=True),
    Column("legs", right=True, drop=6),
    Column("instances", right=True, drop=7),
    Column("server", right=True, drop=5),
    Column("waiting", right=True, drop=3),
    Column("reasons", drop=2, folds=True),
    Column("build", drop=8),
)


def _configure(parser: ArgumentParser) -> None:
    add_filters(parser)
    parser.add_argument("--newest", action="store_true", help="the newest call first, not last")
    parser.add_argument("--rejections", action="store_true", help="list the rejected tokens that name no call instead")
    add_json(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    traced = load(arguments)
    if arguments.rejections:
        return _list_rejections(_wanted_rejections(traced.strays, arguments), arguments)
    calls = matching(traced.calls.values(), arguments)
    if arguments.newest:
        calls.reverse()
    if arguments.json:
        write_out(arguments, json_text([summary(call) for call in calls]))
        return 0 if calls else 1
    screen = Screen()
    if calls:
        screen.table(_COLUMNS, [_row(call) for call in calls])
    if traced.strays:
        screen.line(
            (
                f"and {count_text(len(traced.strays), 'token')} rejected that name no call (--rejections lists them)",
                "dim",
            )
        )
    screen.flush()
    return 0 if calls else 1


def _row(call: TracedCall) -> list[Part]:
    state = call.state.value
    return [
        call.id,
        clock_text(call.started_at),
        call.tool,
        (state, STATE_STYLES.get(state, "")),
        str(call.round_count),
        str(call.legs),
        str(len(call.instances)),
        duration_text(call.server_ms),
        duration_text(call.waited_ms) if call.waited_ms else "-",
        ", ".join(sorted(call.reasons)) or "-",
        build_text(call.began.build if call.began is not None else None),
    ]


def _wanted_rejections(lines: Sequence[RejectedLine], arguments: Namespace) -> list[RejectedLine]:
    wanted = [
        line
        for line in lines
        if is_tool(line.tool, arguments.tool)
        and (arguments.reason is None or line.reason.value in arguments.reason)
        and (arguments.since is None or line.at >= arguments.since)
    ]
    return sorted(wanted, key=lambda line: line.at, reverse=arguments.newest)


def _list_rejections(lines: Sequence[RejectedLine], arguments: Namespace) -> int:
    if arguments.json:
        told = [{**line.model_dump(mode="json"), "text": explain_rejection(line)} for line in lines]
        write_out(arguments, json_text(told))
        return 0 if lines else 1
    screen = Screen()
    for line in lines:
        screen.line((clock_text(line.at), "dim"), "  ", (line.reason.value, "bold red"))
        screen.line(explain_rejection(line), indent=4)
    screen.flush()
    return 0 if lines else 1


COMMAND = Command(
    description=(
        "List the calls of the transcripts, the newest last. The exit code is 0 if there are any, 1 if none passes "
        "the filters, 2 if there is nothing to read."
    ),
    configure=_configure,
    run=_run,
)
