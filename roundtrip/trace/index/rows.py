"""Index rows: facts about calls, for lists and filters."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from roundtrip.trace.explaining.stories import summary
from roundtrip.trace.reading.calls import TracedCall

Row = dict[str, Any]
"""The facts about a call that are shown in lists: names, states, counts and times, but no values."""

Facet = tuple[str, str]
"""A searchable fact: its kind, and its value as text."""

_SINGLE_FACETS: Final = ("tool", "state", "failure", "build", "principal", "rounds")
_LEAVING_ACTIONS: Final = {"decline": "declined", "cancel": "cancelled"}
_LIST_FACETS: Final = {"reason": "reasons", "outcome": "outcomes", "instance": "instances"}
FACETS: Final = (*_SINGLE_FACETS, *_LIST_FACETS)
"""The facet kinds."""


def row_of(call: TracedCall) -> Row:
    """Return a call's row."""
    # The last time at which each instance wrote a line about the call.
    ends = sorted((serving.lines[-1].at, serving.instance) for serving in call.servings)
    seen = {instance: at for at, instance in ends}
    return {**summary(call), "seen": seen, "left": list(_leaving_points(call)), "lags": list(_lags(call))}


def facets_of(row: Mapping[str, Any]) -> list[Facet]:
    """Return a row's facets."""
    single = [(kind, str(row[kind])) for kind in _SINGLE_FACETS if row[kind] is not None]
    return single + [(kind, value) for kind, members in _LIST_FACETS.items() for value in row[members]]


def _leaving_points(call: TracedCall) -> Iterator[tuple[str, str]]:
    """Yield the questions at which the call ended or still waits, each with its outcome."""
    status = call.stopped.how if call.stopped is not None else "waiting" if call.pending else None
    if status is not None:
        yield from [(question.key, status) for question in call.unanswered]
    if call.ended is not None and call.ended.decline is not None:
        # Do not use the text of `decline`: it names a parameter, and the declined question may come from another
        # resolver.
        answers = [answer for round_ in call.rounds for answer in round_.answers if answer.action in _LEAVING_ACTIONS]
        yield from [(answer.key, _LEAVING_ACTIONS[answer.action or ""]) for answer in answers[-1:]]


def _lags(call: TracedCall) -> Iterator[tuple[str, str, float]]:
    """Yield the instances whose clocks are slow: their legs seem to begin before the previous leg's questions.

    Each item contains the slow instance, the other instance, and the minimum delay in seconds.
    """
    for earlier, later in pairwise(call.servings):
        behind = earlier.lines[-1].at - later.started_at
        if later.leg == earlier.leg + 1 and later.instance != earlier.instance and earlier.has_asked and behind > 0:
            yield later.instance, earlier.instance, round(behind, 3)
