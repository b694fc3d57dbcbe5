"""`roundtrip trace diff`: two calls, aligned by round and question."""

import dataclasses
from argparse import ArgumentParser, Namespace
from pathlib import Path

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import add_files, add_json
from roundtrip.cli.trace.sources import find_call, json_text, load, load_files, write_out
from roundtrip.cli.trace.terminal import STATE_STYLES, Screen
from roundtrip.trace.explaining.comparing import Difference, compare
from roundtrip.trace.explaining.stories import summary
from roundtrip.trace.explaining.wording import count_text, duration_text
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["COMMAND"]


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a call, or FILE:ID")
    parser.add_argument("b", metavar="B", help="another, or FILE:ID")
    add_json(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    a, b = _find(arguments.a, arguments), _find(arguments.b, arguments)
    found = compare(a, b)
    if arguments.json:
        told = {
            "a": summary(a),
            "b": summary(b),
            "differences": [dataclasses.asdict(difference) for difference in found],
        }
        write_out(arguments, json_text(told))
        return 1 if found else 0
    screen = Screen()
    for name, call in (("a", a), ("b", b)):
        _head(screen, name, call)
    place = ""
    for difference in found:
        title = f"round {difference.round}" if difference.round is not None else "the call"
        if title != place:
            screen.gap()
            screen.line((title, "bold"))
            place = title
        _difference(screen, difference)
    if not found:
        screen.gap()
        screen.line("No difference, but for times.")
    screen.flush()
    return 1 if found else 0


def _find(name: str, arguments: Namespace) -> TracedCall:
    """A call of the transcripts named last, or of the one named with it."""
    file, colon, id = name.rpartition(":")
    if colon and Path(file).exists():
        return find_call(load_files([file]), id)
    return find_call(load(arguments), name)


def _head(screen: Screen, name: str, call: TracedCall) -> None:
    state = call.state.value
    times = f"server {duration_text(call.server_ms)}"
    times += f", waiting {duration_text(call.waited_ms)}" if call.rounds else ""
    screen.line(
        (f"{name}  ", "bold"),
        f"{call.id}  {call.tool}  ",
        (state, STATE_STYLES.get(state, "")),
        (f"  {count_text(call.round_count, 'round')}, {count_text(call.legs, 'leg')}, {times}", "dim"),
    )


def _difference(screen: Screen, difference: Difference) -> None:
    what = difference.what if difference.key is None else f"{difference.key}: {difference.what}"
    if difference.a is None or difference.b is None:
        only, told = ("a", difference.a) if difference.b is None else ("b", difference.b)
        screen.line((what, "yellow"), f" only in {only}: {told}", indent=2)
        return
    screen.line((what, "yellow"), indent=2)
    screen.line(("a  ", "bold"), difference.a, indent=4)
    screen.line(("b  ", "bold"), difference.b, indent=4)


COMMAND = Command(
    description=(
        "Compare two calls, of one transcript or of two (FILE:ID), by round and question: what was asked in one and "
        "not in the other, reworded, in another order or answered otherwise, and another path of states. Times do "
        "not count. The exit code is 0 if they are the same, 1 if they differ."
    ),
    configure=_configure,
    run=_run,
)
