"""Make the rows of an index: what lists show of a call, and the facts by which it is found."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from roundtrip.trace.explaining.stories import summary
from roundtrip.trace.reading.calls import TracedCall

Row = dict[str, Any]
"""Facts of a call that lists show: names, states, counts and times, and no values."""

Facet = tuple[str, str]
"""A fact by which calls are found: its kind, and its value as text."""

_SINGLE: Final = ("tool", "state", "failure", "build", "principal", "rounds")
_LEFT: Final = {"decline": "declined", "cancel": "cancelled"}
_SEVERAL: Final = {"reason": "reasons", "outcome": "outcomes", "instance": "instances"}
FACETS: Final = (*_SINGLE, *_SEVERAL)
"""The kinds of facets."""


def row_of(call: TracedCall) -> Row:
    """Return the row of a call."""
    # When each instance wrote its last line of the call.
    ends = sorted((serving.lines[-1].at, serving.instance) for serving in call.servings)
    seen = {instance: at for at, instance in ends}
    return {**summary(call), "seen": seen, "left": list(_left(call)), "lags": list(_lags(call))}


def facets_of(row: Mapping[str, Any]) -> list[Facet]:
    """Return the facets of a row."""
    single = [(kind, str(row[kind])) for kind in _SINGLE if row[kind] is not None]
    return single + [(kind, value) for kind, members in _SEVERAL.items() for value in row[members]]


def _left(call: TracedCall) -> Iterator[tuple[str, str]]:
    """Yield the questions at which the user has left the call, or for which it waits, and how."""
    status = call.stopped.how if call.stopped is not None else "waiting" if call.pending else None
    if status is not None:
        yield from [(question.key, status) for question in call.unanswered]
    if call.ended is not None and call.ended.decline is not None:
        # Its text names the parameter of the tool, which may be that of another resolver.
        answers = [answer for round_ in call.rounds for answer in round_.answers if answer.action in _LEFT]
        yield from [(answer.key, _LEFT[answer.action or ""]) for answer in answers[-1:]]


def _lags(call: TracedCall) -> Iterator[tuple[str, str, float]]:
    """Yield instances whose clocks are behind: a leg cannot begin before the leg before it has asked.

    Each has the instance that is behind, the other one, and the seconds by which it is behind at least.
    """
    for earlier, later in pairwise(call.servings):
        behind = earlier.lines[-1].at - later.started_at
        if later.leg == earlier.leg + 1 and later.instance != earlier.instance and earlier.has_asked and behind > 0:
            yield later.instance, earlier.instance, round(behind, 3)
