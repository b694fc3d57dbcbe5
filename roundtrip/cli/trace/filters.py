"""Which calls a list shows."""

import operator
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import OUTCOMES
from roundtrip.machine.table import State
from roundtrip.trace.explaining.stories import outcomes_of
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["add_filters", "is_tool", "matching", "read_reason"]

REASONS: Final = tuple(
    dict.fromkeys([*(reason.value for reason in Reason), *(reason.value for reason in RejectionReason)])
)
_QUESTION_ENDS: Final = (*OUTCOMES.values(), "invalid", "lost")

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


def add_filters(parser: ArgumentParser) -> None:
    """Take the filters. One that is given several times lets through what fits any of its values."""
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
        help=f"calls with an answer that was {', '.join(_QUESTION_ENDS)}",
    )
    parser.add_argument(
        "--reason",
        action="append",
        type=read_reason,
        metavar="REASON",
        help="calls with a question put, or a token rejected, for this reason",
    )
    parser.add_argument(
        "--since", type=_since, metavar="TIME", help="calls with anything since then: 10m, 2h, 3d, 2026-11-21T09:30"
    )
    parser.add_argument("--rounds", type=_rounds, metavar="NUMBER", help="calls with so many rounds: 2, '>2', '<=3'")


def matching(calls: Iterable[TracedCall], arguments: Namespace) -> list[TracedCall]:
    """The calls that pass all filters that were given."""
    return [call for call in calls if _passes(call, arguments)]


def is_tool(name: str | None, wanted: Iterable[str] | None) -> bool:
    """Whether a tool is one of those that are wanted; all are where none was named."""
    if wanted is None:
        return True
    return name is not None and any(name == pattern or fnmatchcase(name, pattern) for pattern in wanted)


def read_reason(text: str) -> str:
    """A reason, with its words apart or joined by hyphens.

    Raises:
        ArgumentTypeError: There is no such reason.
    """
    name = re.sub(r"[-_\s]+", " ", text.strip().lower())
    if name not in REASONS:
        raise ArgumentTypeError(f"there is no reason {text!r}; reasons: {', '.join(REASONS)}")
    return name


def _passes(call: TracedCall, arguments: Namespace) -> bool:
    return (
        is_tool(call.tool, arguments.tool)
        and (arguments.state is None or call.state.value in arguments.state)
        and (arguments.outcome is None or not outcomes_of(call).isdisjoint(arguments.outcome))
        and (arguments.reason is None or not call.reasons.isdisjoint(arguments.reason))
        and (arguments.since is None or call.last_at >= arguments.since)
        and (arguments.rounds is None or arguments.rounds(call.round_count))
    )


def _outcome(text: str) -> str:
    name = OUTCOMES.get(text, text)
    if name not in _QUESTION_ENDS:
        raise ArgumentTypeError(f"there is no outcome {text!r}; outcomes: {', '.join(_QUESTION_ENDS)}")
    return name


def _since(text: str) -> float:
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            # The local time zone, which a date without one means here.
            return (datetime.now().astimezone() - timedelta(**{_UNITS[age[2]]: float(age[1])})).timestamp()
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentTypeError(
            f"{text!r} is no time; write an age (30s, 10m, 2h, 3d) or a date (2026-11-21, 2026-11-21T09:30)"
        ) from error


def _rounds(text: str) -> Callable[[int], bool]:
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no number of rounds; write 2, '>2', '>=2' or '<3'")
    compare, number = _COMPARISONS[found[1]], int(found[2])
    return lambda count: compare(count, number)
