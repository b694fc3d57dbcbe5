"""Joining lines from all instances into calls."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType

from roundtrip.trace.reading import thinning
from roundtrip.trace.reading.calls import NOTHING_OMITTED, Omitted, Round, Serving, Traced, TracedCall
from roundtrip.trace.writing.lines import (
    ActedLine,
    AnsweredLine,
    AskedLine,
    BeganLine,
    EndedLine,
    Line,
    RejectedLine,
    StoppedLine,
)


def join(lines: Iterable[Line], omitted: Mapping[str, Omitted] = MappingProxyType({})) -> Traced:
    """Join lines from all instances into calls.

    Args:
        lines: The lines. Lines from different calls may be interleaved.
        omitted: The requests that an earlier join omitted, by call id. `lines` must then contain all lines that the
            earlier join kept, and any new lines.
    """
    # The key includes the leg, because the serving count starts again when a process restarts under the same name.
    servings: dict[tuple[str, str, int, int], Serving] = {}
    by_call: dict[str, list[Serving]] = {}
    rejections: dict[str, list[RejectedLine]] = {}
    strays: list[RejectedLine] = []
    actions: list[ActedLine] = []
    stops: list[StoppedLine] = []
    for line in lines:
        if isinstance(line, ActedLine):
            actions.append(line)
        elif isinstance(line, StoppedLine):
            stops.append(line)
        elif isinstance(line, RejectedLine):
            (strays if line.call is None else rejections.setdefault(line.call, [])).append(line)
        else:
            name = (line.call, line.instance, line.serving, line.leg)
            serving = servings.get(name)
            if serving is None or (isinstance(line, BeganLine) and serving.began is not None):
                # The process restarted, began its serving count again, and retried the leg.
                serving = servings[name] = Serving(line.instance, line.serving, line.leg)
                by_call.setdefault(line.call, []).append(serving)
            serving.lines.append(line)
    by_call |= {call: [] for call in rejections if call not in by_call}
    calls = [
        _thin(
            _join_call(
                call,
                sorted(found, key=lambda serving: (serving.leg, serving.started_at)),
                rejections.get(call, []),
                omitted.get(call, NOTHING_OMITTED),
            )
        )
        for call, found in by_call.items()
    ]
    joined = {call.id: call for call in sorted(calls, key=lambda call: call.started_at)}
    actions.sort(key=lambda line: line.at)
    for line in actions:
        if line.call in joined:
            joined[line.call].actions.append(line)
    for line in sorted(stops, key=lambda line: line.at):
        if line.call in joined:
            joined[line.call].stops.append(line)
    return Traced(joined, strays, actions)


def _thin(call: TracedCall) -> TracedCall:
    """If a call has very many requests, keep only a few of each set of identical requests."""
    if call.request_count <= thinning.MAX_REQUESTS:
        return call
    servings, rejections, is_cut = thinning.choose_requests(call)
    if len(servings) == len(call.servings) and len(rejections) == len(call.rejections):
        return call
    kept = _join_call(call.id, servings, rejections, replace(NOTHING_OMITTED, is_cut=is_cut or call.omitted.is_cut))
    kept.omitted = thinning.count_omitted(call, kept)
    return kept


def _join_call(id: str, servings: list[Serving], rejections: list[RejectedLine], omitted: Omitted) -> TracedCall:
    rounds: list[Round] = []
    asked = _PreviousRounds(is_cut=omitted.is_cut)
    for serving in servings:
        out = asked.round_for(serving)
        if out is not None and out.answered_at is None:
            out.answered_at = serving.started_at
        for line in serving.happened:
            if out is not None and line.answers and out.read_by in (None, serving):
                out.read_by = serving
                out.answers.extend(line.answers)
            if isinstance(line, AskedLine):
                out = Round(line, serving)
                rounds.append(out)
                asked.add(out)
            elif isinstance(line, AnsweredLine) and out is not None:
                if line.keys:
                    out.answered_at = line.at
                else:
                    out.given_up_at = line.at
            elif isinstance(line, EndedLine) and out is not None and out.serving is serving and out.waited_ms is None:
                out.given_up_at = line.at
    return TracedCall(id, servings, rounds, rejections, omitted=omitted)


class _PreviousRounds:
    """The previous leg's rounds. Legs must be added in order."""

    def __init__(self, *, is_cut: bool) -> None:
        self._is_cut = is_cut
        self._before: list[Round] = []
        self._earliest_times: list[float] = []
        """For each round, the earliest time at which this round or any later round was asked."""
        self._by_token_size: dict[int, list[int]] = {}
        """Round indexes by token size."""
        self._current: list[Round] = []
        self._by_leg: dict[int, list[Round]] = {}

    def add(self, round_: Round) -> None:
        """Add one of the current leg's rounds."""
        self._current.append(round_)
        self._by_leg.setdefault(round_.serving.leg, []).append(round_)

    def round_for(self, serving: Serving) -> Round | None:
        """Return the round that this attempt at a leg answers.

        If the previous leg was served twice, it asked two rounds, and their tokens differ in size. The result is then
        the last earlier round whose token has the same size as the request's token.
        """
        if self._current and self._current[0].serving.leg < serving.leg:
            self._before, self._current = self._current, []
            self._earliest_times = [*accumulate((one.asked.at for one in reversed(self._before)), min)][::-1]
            self._by_token_size = {}
            for place, one in enumerate(self._before):
                if one.asked.token is not None:
                    self._by_token_size.setdefault(one.asked.token.bytes, []).append(place)
        if serving.joins and serving.intent is not None:
            # The request answers the questions of an older leg, or it began again and answers none.
            shown = self._by_leg.get(serving.intent.token_leg or 0, [])
            same = [one for one in shown if one.asked.token and one.asked.token.bytes == (serving.token_bytes or 0)]
            return next(reversed(same or shown), None)
        if not self._before or (self._is_cut and self._before[0].serving.leg + 1 < serving.leg):
            # The leg that asked the questions may have been omitted.
            return None
        # Instance clocks differ, so all rounds may seem to be later. In that case, the last round counts.
        last = bisect_right(self._earliest_times, serving.started_at) or len(self._before)
        fitting = self._by_token_size.get(serving.token_bytes or 0, [])
        place = bisect_right(fitting, last - 1) or 1
        return self._before[fitting[place - 1] if fitting else last - 1]
