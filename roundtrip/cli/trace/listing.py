"""`roundtrip trace ls`: list the calls that pass some filters."""

import operator
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from roundtrip.cli.trace.sources import load, present, view
from roundtrip.cli.trace.terminal import STATE_STYLES, Column, Part, Screen
from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import OUTCOMES
from roundtrip.machine.table import State
from roundtrip.safe_text import build_text
from roundtrip.trace.explaining.explanations import explain_rejection
from roundtrip.trace.explaining.stories import outcomes_of, summary
from roundtrip.trace.explaining.wording import clock_text, count_text, duration_text
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import RejectedLine

__all__ = ["COMMANDS", "is_tool", "read_reason"]

_REASONS: Final = tuple(
    dict.fromkeys([*(reason.value for reason in Reason), *(reason.value for reason in RejectionReason)])
)
_ANSWER_OUTCOMES: Final = (*OUTCOMES.values(), "invalid", "lost")
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COUNT: Final = re.compile(r"\s*(>=|<=|>|<|==?|)\s*(\d+)\s*")
_COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "": operator.eq,
}
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


def _options(parser: ArgumentParser) -> None:
    """Add the filters. A repeated filter accepts each of its values."""
    states = [state.value for state in State]
    parser.add_argument("--tool", action="append", metavar="NAME", help="calls of this tool; may have wildcards (*)")
    parser.add_argument(
        "--state", action="append", choices=states, metavar="STATE", help=f"calls that are {', '.join(states)}"
    )
    parser.add_argument(
        "--outcome",
        action="append",
        type=_outcome,
        metavar="OUTCOME",
        help=f"calls with an answer that was {', '.join(_ANSWER_OUTCOMES)}",
    )
    parser.add_argument(
        "--reason",
        action="append",
        type=read_reason,
        metavar="REASON",
        help="calls with a question asked, or a token rejected, for this reason",
    )
    parser.add_argument(
        "--since", type=_since, metavar="TIME", help="calls with events since then: 10m, 2h, 3d, 2026-11-21T09:30"
    )
    parser.add_argument(
        "--rounds", type=_rounds, metavar="NUMBER", help="calls with this number of rounds: 2, '>2', '<=3'"
    )
    parser.add_argument("--newest", action="store_true", help="the newest call first, not last")
    parser.add_argument(
        "--rejections", action="store_true", help="list instead the rejected tokens whose call is unknown"
    )


def is_tool(name: str | None, wanted: Iterable[str] | None) -> bool:
    """Return True if a tool fits one of the patterns; None fits every tool."""
    return wanted is None or (
        name is not None and any(name == pattern or fnmatchcase(name, pattern) for pattern in wanted)
    )


def read_reason(text: str) -> str:
    """Return a reason, whose words may be joined by hyphens.

    Raises:
        ArgumentTypeError: There is no such reason.
    """
    return _one_of(re.sub(r"[-_\s]+", " ", text.strip().lower()), text, "reason", _REASONS)


def _outcome(text: str) -> str:
    return _one_of(OUTCOMES.get(text, text), text, "outcome", _ANSWER_OUTCOMES)


def _one_of(name: str, text: str, what: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ArgumentTypeError(f"there is no {what} {text!r}; {what}s: {', '.join(known)}")
    return name


def _since(text: str) -> float:
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            # In the local time zone, as is a date without a zone below.
            return (datetime.now().astimezone() - timedelta(**{_UNITS[age[2]]: float(age[1])})).timestamp()
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentTypeError(
            f"{text!r} is not a time; write an age (30s, 10m, 2h, 3d) or a date (2026-11-21, 2026-11-21T09:30)"
        ) from error


def _rounds(text: str) -> Callable[[int], bool]:
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a number of rounds; write 2, '>2', '>=2' or '<3'")
    compare, number = _COMPARISONS[found[1]], int(found[2])
    return lambda count: compare(count, number)


def _passes(call: TracedCall, arguments: Namespace) -> bool:
    return (
        is_tool(call.tool, arguments.tool)
        and (arguments.state is None or call.state.value in arguments.state)
        and (arguments.outcome is None or not outcomes_of(call).isdisjoint(arguments.outcome))
        and (arguments.reason is None or not call.reasons.isdisjoint(arguments.reason))
        and (arguments.since is None or call.last_at >= arguments.since)
        and (arguments.rounds is None or arguments.rounds(call.round_count))
    )


def _run(arguments: Namespace) -> int:
    traced = load(arguments)
    if arguments.rejections:
        return _list_rejections(traced.strays, arguments)
    calls = [call for call in traced.calls.values() if _passes(call, arguments)]
    if arguments.newest:
        calls.reverse()

    def draw(screen: Screen) -> None:
        if calls:
            screen.table(_COLUMNS, [_row(call) for call in calls])
        if traced.strays:
            tokens = count_text(len(traced.strays), "token")
            screen.line((f"and {tokens} rejected without a known call (--rejections lists them)", "dim"))

    present(arguments, lambda: [summary(call) for call in calls], draw)
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


def _list_rejections(strays: Iterable[RejectedLine], arguments: Namespace) -> int:
    lines = [
        line
        for line in sorted(strays, key=lambda line: line.at, reverse=arguments.newest)
        if is_tool(line.tool, arguments.tool)
        and (arguments.reason is None or line.reason.value in arguments.reason)
        and (arguments.since is None or line.at >= arguments.since)
    ]

    def draw(screen: Screen) -> None:
        for line in lines:
            screen.line((clock_text(line.at), "dim"), "  ", (line.reason.value, "bold red"))
            screen.line(explain_rejection(line), indent=4)

    present(
        arguments, lambda: [{**line.model_dump(mode="json"), "text": explain_rejection(line)} for line in lines], draw
    )
    return 0 if lines else 1


COMMANDS: Final = {
    "ls": view(
        "List the calls of the transcripts, the newest last. The exit code is 0 if there are any, 1 if none passes "
        "the filters, 2 if there is nothing to read.",
        _run,
        options=_options,
        json=True,
    )
}
