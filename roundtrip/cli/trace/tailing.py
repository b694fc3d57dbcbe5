"""`roundtrip trace tail`: what happens now, one line for each event."""

import errno
import os
import select
import stat
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import add_files, add_json
from roundtrip.cli.trace.filters import is_tool, read_reason
from roundtrip.cli.trace.sources import json_text, named_files, tell_losses, warn
from roundtrip.cli.trace.terminal import STATE_STYLES, Part, Screen
from roundtrip.machine.facts import Reason
from roundtrip.safe_text import build_text
from roundtrip.trace.explaining.wording import clock_text, count_text, duration_text, size_text
from roundtrip.trace.reading.following import Follower
from roundtrip.trace.writing.lines import AnsweredLine, AskedLine, BeganLine, EndedLine, Line, RejectedLine

__all__ = ["COMMAND"]

_PAUSE: Final = 0.2
"""Seconds between two looks at the files."""

_REMEMBERED: Final = 100_000
"""Calls whose tool is known; the lines of a call name it once a leg."""


class _Filter:
    """Lets lines through, and knows what the call of a line is a call of."""

    def __init__(self, arguments: Namespace) -> None:
        self._call: str | None = arguments.call.strip() if arguments.call is not None else None
        self._tools: list[str] | None = arguments.tool
        self._reasons: list[str] | None = arguments.reason
        self._known: OrderedDict[str, str] = OrderedDict()

    def tool_of(self, line: Line) -> str | None:
        if isinstance(line, BeganLine | RejectedLine):
            return line.tool
        return self._known.get(line.call)

    def passes(self, line: Line) -> bool:
        if isinstance(line, BeganLine):
            self._known[line.call] = line.tool
            self._known.move_to_end(line.call)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        if self._call is not None and (line.call is None or not line.call.startswith(self._call)):
            return False
        return is_tool(self.tool_of(line), self._tools) and self._has_reason(line)

    def _has_reason(self, line: Line) -> bool:
        if self._reasons is None:
            return True
        if isinstance(line, RejectedLine):
            return line.reason.value in self._reasons
        return isinstance(line, AskedLine) and any(
            question.reason.value in self._reasons for question in line.questions
        )


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--call", metavar="ID", help="only this call; the beginning of its name is enough")
    parser.add_argument("--tool", action="append", metavar="NAME", help="only this tool; may have wildcards (*)")
    parser.add_argument(
        "--reason",
        action="append",
        type=read_reason,
        metavar="REASON",
        help="only questions put, and tokens rejected, for this reason",
    )
    parser.add_argument(
        "--lines",
        type=_number,
        default=10,
        metavar="NUMBER",
        help="events of the past to begin with; default: %(default)s",
    )
    add_json(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    names = named_files(arguments)
    _check(names)
    follower = Follower(names)
    let = _Filter(arguments)
    show = _shower(let, as_json=arguments.json)
    pause = _pause_for(sys.stdout)
    past = sorted((line for line in follower.poll() if let.passes(line)), key=_when)
    show(islice(past, max(0, len(past) - arguments.lines), None))
    del past
    tell_losses(follower.reading)
    lost = follower.reading.unreadable + follower.reading.newer
    while True:
        pause()
        show(sorted((line for line in follower.poll() if let.passes(line)), key=_when))
        if follower.reading.unreadable + follower.reading.newer > lost:
            lost = follower.reading.unreadable + follower.reading.newer
            warn("another line could not be read, and is left out")


def _check(names: Iterable[str]) -> None:
    for name in names:
        path = Path(name)
        if not path.exists():
            warn(f"{name!r} is not there yet")
        elif not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise CommandFailed(f"{name!r} is neither a file nor a directory, and cannot be followed")


def _when(line: Line) -> float:
    return line.at


def _shower(let: _Filter, *, as_json: bool) -> Callable[[Iterable[Line]], None]:
    if as_json:

        def show_json(lines: Iterable[Line]) -> None:
            for line in lines:
                print(json_text(line.model_dump(exclude_unset=True), indent=None))
            sys.stdout.flush()

        return show_json
    screen = Screen()

    def show(lines: Iterable[Line]) -> None:
        for line in lines:
            tool = let.tool_of(line)
            screen.line(
                (clock_text(line.at, precise=True)[11:], "dim"),
                (f"  {line.instance}", "dim"),
                f"  {line.call or '-'}  {tool if tool is not None else '?'}  ",
                *_event(line),
            )
        screen.flush()

    return show


def _event(line: Line) -> list[Part]:
    if isinstance(line, BeganLine):
        build = ""
        if line.previous_build:
            build = f" by another build ({build_text(line.build)}, after {build_text(line.previous_build)})"
        return [f"leg {line.leg} began", (f", {line.era} era{build}", "dim")]
    if isinstance(line, AskedLine):
        told: list[Part] = ["asked "]
        for place, question in enumerate(line.questions):
            is_new = question.reason is Reason.NEW
            told += [", " if place else "", question.key, (f" ({question.reason.value})", "" if is_new else "yellow")]
        size = f", token of {size_text(line.token.bytes)}" if line.token is not None else ""
        return [*told, (f", round {line.round} in leg {line.leg}{size}", "dim")]
    if isinstance(line, AnsweredLine) and not line.keys:
        return ["gave the question up", (f" after {duration_text(line.waited)}", "dim")]
    if isinstance(line, AnsweredLine):
        return [f"answered {', '.join(line.keys)}", (f" after {duration_text(line.waited)}", "dim")]
    if isinstance(line, EndedLine):
        style = STATE_STYLES.get(line.state, "")
        error = f" with {line.error.type}" if line.error is not None else " with an error" if line.is_error else ""
        rounds = f" after {count_text(line.round, 'round')} in leg {line.leg}"
        return [(line.state, style), error, (rounds, "dim")]
    return [(f"rejected the token: {line.reason.value}", "bold red")]


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number of events")
    return int(text)


def _pause_for(stream: TextIO) -> Callable[[], None]:
    """Waits a moment, and notices when nobody reads any more, though there is nothing to write."""
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return _sleep
    if not hasattr(select, "poll"):  # Windows
        return _sleep
    watched = select.poll()
    watched.register(fd, 0)

    def pause() -> None:
        ready = watched.poll(_PAUSE * 1000)
        if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in ready):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return pause


def _sleep() -> None:
    time.sleep(_PAUSE)


COMMAND = Command(
    description=(
        "Print each event as servers write it, of all files and directories that are named, through their rotation, "
        "and of files that appear later. It ends when it is interrupted (exit code 130), or when nobody reads on."
    ),
    configure=_configure,
    run=_run,
)
