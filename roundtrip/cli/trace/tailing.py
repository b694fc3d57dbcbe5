"""`roundtrip trace tail`: print events as soon as servers write them, one event per line."""

import errno
import os
import select
import stat
import sys
import time
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere, whole_number
from roundtrip.cli.trace.listing import read_reason
from roundtrip.cli.trace.sources import json_text, named_files, view, warn, warn_of_losses
from roundtrip.cli.trace.terminal import STATE_STYLES, Part, Screen
from roundtrip.machine.facts import Reason
from roundtrip.text import build_text
from roundtrip.trace.explaining.wording import (
    action_text,
    approvals_text,
    clock_text,
    count_text,
    duration_text,
    stop_text,
    token_text,
)
from roundtrip.trace.index.filters import fits
from roundtrip.trace.reading.following import Follower
from roundtrip.trace.writing.lines import (
    ActedLine,
    AnsweredLine,
    AskedLine,
    BeganLine,
    EndedLine,
    HandedLine,
    Line,
    RejectedLine,
    StoppedLine,
)

_POLL_SECONDS: Final = 0.2
_MAX_KNOWN_CALLS: Final = 100_000
"""Maximum number of calls whose tools the filter remembers. Only the first line of a leg names the tool."""


class _Filter:
    """Line filter that remembers each call's tool."""

    def __init__(self, arguments: Namespace) -> None:
        self._call: str | None = arguments.call.strip() if arguments.call is not None else None
        self._tools: list[str] = arguments.tool
        self._reasons: list[str] = arguments.reason
        self._tool_by_call: OrderedDict[str, str] = OrderedDict()

    def tool_of(self, line: Line) -> str | None:
        if isinstance(line, BeganLine | RejectedLine | StoppedLine):
            return line.tool
        known_tool = self._tool_by_call.get(line.call)
        return line.tool if isinstance(line, ActedLine) and line.tool is not None else known_tool

    def passes(self, line: Line) -> bool:
        if isinstance(line, BeganLine):
            self._tool_by_call[line.call] = line.tool
            self._tool_by_call.move_to_end(line.call)
            if len(self._tool_by_call) > _MAX_KNOWN_CALLS:
                self._tool_by_call.popitem(last=False)
        if self._call is not None and (line.call is None or not line.call.startswith(self._call)):
            return False
        return fits(self.tool_of(line), self._tools) and self._has_reason(line)

    def _has_reason(self, line: Line) -> bool:
        if not self._reasons:
            return True
        if isinstance(line, RejectedLine):
            return line.reason.value in self._reasons
        return isinstance(line, AskedLine) and any(
            question.reason.value in self._reasons for question in line.questions
        )


def _options(parser: OptionsAnywhere) -> None:
    parser.add_option("--call", "ID", "only calls whose id begins with this text")
    parser.add_option("--tool", "NAME", "only this tool; may have wildcards (*)", repeats=True)
    parser.add_option(
        "--reason",
        "REASON",
        "only questions asked, and tokens rejected, for this reason",
        repeats=True,
        type=read_reason,
    )
    parser.add_option(
        "--lines", "NUMBER", "past events to print first; default: %(default)s", type=whole_number(0), default=10
    )


def _run(arguments: Namespace) -> int:
    names = named_files(arguments)
    _check(names)
    follower = Follower(names)
    filter = _Filter(arguments)
    screen = None if arguments.json else Screen()
    pause = _pause_for(sys.stdout)

    def poll() -> list[Line]:
        # Sort the lines by time. The filter learns a call's tool from an earlier line, which may be in another file.
        return [line for line in sorted(follower.poll(), key=lambda line: line.at) if filter.passes(line)]

    past = poll()
    _print(islice(past, max(0, len(past) - arguments.lines), None), filter, screen)
    del past
    warn_of_losses(follower.reading.unreadable, follower.reading.newer)
    lost = follower.reading.lost
    while True:
        pause()
        _print(poll(), filter, screen)
        if follower.reading.lost > lost:
            lost = follower.reading.lost
            warn("skipped another unreadable line")


def _check(names: Iterable[str]) -> None:
    for name in names:
        path = Path(name)
        if not path.exists():
            warn(f"{name!r} does not exist yet")
        elif not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise CommandFailed(f"can follow only files and directories, got {name!r}")


def _print(lines: Iterable[Line], filter: _Filter, screen: Screen | None) -> None:
    """Print lines on the screen. If there is no screen, print JSON."""
    for line in lines:
        if screen is None:
            print(json_text(line.model_dump(exclude_unset=True), indent=None))
            continue
        tool = filter.tool_of(line)
        screen.line(
            (clock_text(line.at, precise=True)[11:], "dim"),
            (f"  {line.instance}", "dim"),
            f"  {line.call or '-'}  {tool if tool is not None else '?'}  ",
            *_event(line),
        )
    sys.stdout.flush()


def _event(line: Line) -> list[Part]:
    if isinstance(line, BeganLine):
        build = ""
        if line.previous_build:
            build = f" by another build ({build_text(line.build)}, after {build_text(line.previous_build)})"
        return [f"leg {line.leg} began", (f", {line.era} era{build}", "dim")]
    if isinstance(line, AskedLine):
        if line.approvals and not line.questions:
            return [f"waits {approvals_text(line.approvals)}", (f", round {line.round} in leg {line.leg}", "dim")]
        parts: list[Part] = ["asked "]
        for index, question in enumerate(line.questions):
            is_new = question.reason is Reason.NEW
            parts += [", " if index else "", question.key, (f" ({question.reason.value})", "" if is_new else "yellow")]
        size = f", {token_text(line.token.bytes)}" if line.token is not None else ""
        return [*parts, (f", round {line.round} in leg {line.leg}{size}", "dim")]
    if isinstance(line, AnsweredLine):
        event = f"answered {', '.join(line.keys)}" if line.keys else "stopped waiting for the answer"
        return [event, (f" after {duration_text(line.waited)}", "dim")]
    if isinstance(line, EndedLine):
        style = STATE_STYLES.get(line.state, "")
        error = f" with {line.error.type}" if line.error is not None else " with an error" if line.is_error else ""
        rounds = f" after {count_text(line.round, 'round')} in leg {line.leg}"
        return [(line.state, style), error, (rounds, "dim")]
    if isinstance(line, HandedLine):
        return ["became a task", (f" in leg {line.leg}", "dim")]
    if isinstance(line, ActedLine):
        return [(action_text(line), "yellow")]
    if isinstance(line, StoppedLine):
        return [(stop_text(line), "yellow")]
    return [(f"rejected the token: {line.reason.value}", "bold red")]


def _pause_for(stream: TextIO) -> Callable[[], None]:
    """Return a function that waits briefly, and raises `BrokenPipeError` if the stream's reader has disconnected."""
    try:
        # Windows does not have `select.poll`.
        fd, poller = stream.fileno(), select.poll()
    except (AttributeError, OSError, ValueError):
        return partial(time.sleep, _POLL_SECONDS)
    poller.register(fd, 0)

    def pause() -> None:
        ready = poller.poll(_POLL_SECONDS * 1000)
        if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in ready):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return pause


COMMANDS: Final = {
    "tail": view(
        "Print events from all named files and directories as servers write them, including files that appear later "
        "or after a rotation. The command ends on an interrupt (exit code 130), or when its output is closed.",
        _run,
        options=_options,
        json=True,
    )
}
