"""`roundtrip trace ls`: list calls, with filters."""

import operator
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from roundtrip.cli.parsing import OptionsAnywhere, whole_number
from roundtrip.cli.trace.calls import CallSource, open_calls
from roundtrip.cli.trace.sources import present, view, warn
from roundtrip.cli.trace.terminal import STATE_STYLES, Column, Part, Screen
from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import OUTCOMES
from roundtrip.machine.table import State
from roundtrip.text import build_text
from roundtrip.trace.explaining.explanations import explain_rejection
from roundtrip.trace.explaining.wording import clock_text, count_text, duration_text
from roundtrip.trace.index.filters import CallFilter, fits, time_of
from roundtrip.trace.index.rows import FACETS, Row

_REASONS: Final = tuple(
    dict.fromkeys([*(reason.value for reason in Reason), *(reason.value for reason in RejectionReason)])
)
_ANSWER_OUTCOMES: Final = (*OUTCOMES.values(), "invalid", "lost")
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
_OTHER_FACETS: Final = {
    "instance": "that this instance served",
    "build": "that began on this build",
    "principal": "from this caller, given by the fingerprint in the transcript",
    "failure": "that ended with this type of error (ToolTimedOut), or with a tool_error",
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


def _options(parser: OptionsAnywhere) -> None:
    """Add the filters. If a filter is given more than once, a call needs to match only one of its values."""
    states = [state.value for state in State]
    parser.add_option("--tool", "NAME", "calls of this tool; may have wildcards (*)", repeats=True)
    parser.add_option("--state", "STATE", f"calls in this state: {', '.join(states)}", repeats=True, choices=states)
    parser.add_option(
        "--outcome",
        "OUTCOME",
        f"calls with an answer of this kind: {', '.join(_ANSWER_OUTCOMES)}",
        repeats=True,
        type=_outcome,
    )
    parser.add_option(
        "--reason",
        "REASON",
        "calls that asked a question or rejected a token for this reason",
        repeats=True,
        type=read_reason,
    )
    parser.add_option("--since", "TIME", "calls with events since TIME: 10m, 2h, 3d, 2026-11-21T09:30", type=read_age)
    parser.add_option("--rounds", "NUMBER", "calls with this number of rounds: 2, '>2', '<=3'", type=_rounds)
    for kind, description in _OTHER_FACETS.items():
        parser.add_option(f"--{kind}", kind.upper(), f"calls {description}; may have wildcards", repeats=True)
    parser.add_option("--limit", "N", "only the newest N calls", type=whole_number(1))
    parser.add_switch("--newest", "list the newest call first")
    parser.add_switch("--rejections", "list rejected tokens of unknown calls instead")


def read_reason(text: str) -> str:
    """Return the rejection reason that a text names. The text may have hyphens instead of spaces.

    Raises:
        ArgumentTypeError: There is no such reason.
    """
    return _check_choice(re.sub(r"[-_\s]+", " ", text.strip().lower()), text, "reason", _REASONS)


def _outcome(text: str) -> str:
    return _check_choice(OUTCOMES.get(text, text), text, "outcome", _ANSWER_OUTCOMES)


def _check_choice(name: str, text: str, kind: str, choices: Sequence[str]) -> str:
    if name not in choices:
        raise ArgumentTypeError(f"there is no {kind} {text!r}; {kind}s: {', '.join(choices)}")
    return name


def read_age(text: str) -> float:
    """Convert an age or a date to Unix time.

    Raises:
        ArgumentTypeError: The text is neither an age nor a date.
    """
    try:
        return time_of(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _rounds(text: str) -> Callable[[int], bool]:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"must be a number of rounds such as 2, '>2', '>=2' or '<3', got {text!r}")
    compare, number = _COMPARISONS[match[1]], int(match[2])
    return lambda count: compare(count, number)


def _filter(arguments: Namespace) -> CallFilter:
    chosen = {kind: values for kind in FACETS if (values := getattr(arguments, kind, None))}
    # On the command line, `rounds` is a comparison, but in the index, it is a facet.
    rounds = chosen.pop("rounds", None)
    return CallFilter(chosen, since=arguments.since, rounds=rounds)


def _has_filter(arguments: Namespace) -> bool:
    return arguments.since is not None or any(getattr(arguments, kind, None) for kind in FACETS)


def _run(arguments: Namespace) -> int:
    calls = open_calls(arguments)
    if arguments.rejections:
        return _list_rejections(calls, arguments)
    rows = list(islice(calls.rows(_filter(arguments)), arguments.limit))
    if not arguments.newest:
        rows.reverse()

    def draw(screen: Screen) -> None:
        if rows:
            screen.table(_COLUMNS, [_cells(row) for row in rows])
        strays = calls.stray_count()
        if strays:
            tokens = count_text(strays, "token")
            screen.line((f"and {tokens} rejected without a known call (list them with --rejections)", "dim"))

    present(arguments, lambda: rows, draw)
    if not rows:
        warn("no recorded call matches the filters" if _has_filter(arguments) else "no calls are recorded")
    return 0 if rows else 1


def _cells(row: Row) -> list[Part]:
    state = row["state"]
    return [
        row["call"],
        clock_text(row["started_at"]),
        row["tool"],
        (f"{state}, recalled" if row["recalled"] else state, STATE_STYLES.get(state, "")),
        str(row["rounds"]),
        str(row["legs"]),
        str(len(row["instances"])),
        duration_text(row["server_ms"]),
        duration_text(row["waited_ms"]) if row["waited_ms"] else "-",
        ", ".join(row["reasons"]) or "-",
        build_text(row["build"]),
    ]


def _list_rejections(calls: CallSource, arguments: Namespace) -> int:
    matches = [
        line
        for line in calls.strays()
        if fits(line.tool, arguments.tool)
        and (not arguments.reason or line.reason.value in arguments.reason)
        and (arguments.since is None or line.at >= arguments.since)
    ]
    lines = matches[: arguments.limit] if arguments.newest else matches[: arguments.limit][::-1]

    def draw(screen: Screen) -> None:
        for line in lines:
            screen.line((clock_text(line.at), "dim"), "  ", (line.reason.value, "bold red"))
            screen.line(explain_rejection(line), indent=4)

    present(
        arguments, lambda: [{**line.model_dump(mode="json"), "text": explain_rejection(line)} for line in lines], draw
    )
    if not lines:
        warn("no rejection matches the filters" if _has_filter(arguments) else "no token without a call was rejected")
    return 0 if lines else 1


COMMANDS: Final = {
    "ls": view(
        "List recorded calls, newest last. The exit code is 0 if calls were listed, 1 if no call passes the filters, "
        "2 if there is nothing to read.",
        _run,
        options=_options,
        json=True,
    )
}
