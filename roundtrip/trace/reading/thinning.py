"""Thinning calls with very many requests: of equal requests, only the first and the last few remain.

A client can send the same token again and again. Each time, one more request is added to the call.
"""

from collections.abc import Hashable
from typing import Final

from roundtrip.trace.reading.calls import Omitted, Serving, TracedCall
from roundtrip.trace.writing.lines import AskedLine, EndedLine, RejectedLine

MAX_REQUESTS: Final = 1000
"""Maximum number of requests in a call. A call with more requests is thinned."""
MAX_EQUAL: Final = 8
"""Number of equal requests to keep from the start of a thinned call, and also from its end."""
_MAX_RUNNING: Final = 250
"""`MAX_EQUAL` for requests without a recorded end. The number is higher, so that a late end line still finds its
request.
"""


def choose_requests(call: TracedCall) -> tuple[list[Serving], list[RejectedLine], bool]:
    """Return the attempts and rejections to keep, in order. Also return True if some omitted requests are not
    repetitions.
    """
    requests = sorted([*call.servings, *call.rejections], key=_start_time)
    continued = {id(serving) for serving in call.chain}
    kinds: dict[Hashable, list[int]] = {}
    for place, request in enumerate(requests):
        kinds.setdefault((_equality_key(request), id(request) in continued), []).append(place)
    places: set[int] = set()
    for equal in kinds.values():
        most = MAX_EQUAL if _is_over(requests[equal[0]]) else _MAX_RUNNING
        places.update(equal[:most] + equal[-most:])
    kept = sorted(places)
    is_cut = len(kept) > MAX_REQUESTS
    if is_cut:
        # First keep the requests whose responses the client acted on, because they determine the call's state.
        chain = _both_ends([place for place in kept if id(requests[place]) in continued], MAX_REQUESTS - 2 * MAX_EQUAL)
        others = sorted({*kept} - {*chain})
        kept = [*chain, *_both_ends(others, MAX_REQUESTS - len(chain))]
    chosen = {id(requests[place]) for place in kept}
    servings = [serving for serving in call.servings if id(serving) in chosen]
    return servings, [line for line in call.rejections if id(line) in chosen], is_cut


def count_omitted(whole: TracedCall, kept: TracedCall) -> Omitted:
    """Summarize the requests that were omitted from a thinned call."""
    return Omitted(
        requests=whole.request_count - kept.request_count,
        replays=whole.replay_count - kept.replay_count,
        rejections=whole.rejection_count - kept.rejection_count,
        bodies=whole.bodies - kept.bodies,
        server_ms=whole.server_ms - kept.server_ms,
        waited_ms=whole.waited_ms - kept.waited_ms,
        last_at=whole.last_at,
        is_cut=kept.omitted.is_cut,
    )


def _both_ends(places: list[int], most: int) -> list[int]:
    """Return at most `most` places, from both ends of the list."""
    half = most // 2
    return places if len(places) <= most else places[:half] + places[-half:]


def _start_time(request: Serving | RejectedLine) -> float:
    return request.at if isinstance(request, RejectedLine) else request.started_at


def _is_over(request: Serving | RejectedLine) -> bool:
    return isinstance(request, RejectedLine) or request.is_over


def _equality_key(request: Serving | RejectedLine) -> Hashable:
    """Return a key that is the same for equal requests. The key does not depend on times."""
    if isinstance(request, RejectedLine):
        return request.leg, request.instance, request.reason
    began, last = request.began, request.lines[-1]
    end = (last.state, last.is_error, last.error_type, repr(last.result)) if isinstance(last, EndedLine) else ()
    happened = request.happened
    return (
        request.leg,
        request.instance,
        began and began.build,
        last.event,
        end,
        request.bodies > 0,
        request.is_recall,
        request.takes_over,
        frozenset(one.reason for line in happened if isinstance(line, AskedLine) for one in line.questions),
        frozenset(repr(answer) for line in happened for answer in line.answers),
        frozenset((step.key, step.how) for line in happened for step in line.steps),
    )
