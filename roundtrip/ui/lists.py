"""Lists for the pages, read from an index: calls, rejected tokens and operator actions."""

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from roundtrip.text import build_text
from roundtrip.trace.explaining.explanations import explain_rejection
from roundtrip.trace.explaining.failures import explain_end
from roundtrip.trace.explaining.wording import clock_text, duration_text, listed_text
from roundtrip.trace.index.filters import CallFilter, time_of
from roundtrip.trace.index.index import CallIndex, CallPosition, ListedLine
from roundtrip.trace.index.rows import FACETS, Row
from roundtrip.trace.page.data import STATE_SYMBOLS, Data, action_data
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import ActedLine, RejectedLine

Query = Mapping[str, Sequence[str]]
"""The query in an address. It maps each name to a list of values."""

_PAGE_ROWS: Final = 100
_MAX_CHOICES: Final = 100
_MAX_NAMES: Final = 12
_MAX_REMEMBERED: Final = 1000
_MENUS: Final = ("tool", "state", "reason", "build", "principal", "instance", "failure")
_MAX_NUMBER: Final = 2**63
"""Upper bound for the numbers in an index."""
_QUERY_NAMES: Final = (*FACETS, "since", "before", "q", "after")


def read_filters(query: Query) -> dict[str, list[str]]:
    """Return the filters in a query, without empty values."""
    found = {name: [value for value in query.get(name, ()) if value] for name in _QUERY_NAMES}
    return {name: values for name, values in found.items() if values}


class Lists:
    """Lists for the pages, read from an index. Thread-safe."""

    def __init__(self, index: CallIndex) -> None:
        self._index = index
        self._why = lru_cache(_MAX_REMEMBERED)(self._explain)

    def calls(self, query: Query) -> Data:
        """Return one page from the list of calls, newest first."""
        chosen = read_filters(query)
        found: list[Row] = []
        number, following, error = 0, None, ""
        try:
            filter, after = _parse_filter(chosen)
        except ValueError as wrong:
            error = str(wrong)
        else:
            found, following = self._index.page(filter, limit=_PAGE_ROWS, after=after)
            counted = self._index.number_of(filter)
            number = len(found) if counted is None else counted
        return {
            "calls": [self._row(row) for row in found],
            "chosen": {name: values for name, values in chosen.items() if name != "after"},
            "choices": {kind: self._index.choices(kind, _MAX_CHOICES) for kind in _MENUS},
            "found": number,
            "found_more": following is not None and number == len(found),
            "total": self._index.count(),
            "next": None if following is None else f"{following[0]!r}:{following[1]}",
            "error": error,
        }

    def rejected(self, query: Query) -> Data:
        """Return one page from the list of rejected tokens."""
        reasons = query.get("reason", ())
        found, following = self._load_lines("rejected", query, reasons)
        lines = [one.line for one in found if isinstance(one.line, RejectedLine)]
        # Look up each call only once, because several of its tokens may have been rejected.
        calls = {id: self._index.find(id) for id in {line.call for line in lines} if id is not None}
        return {
            "rejected": [self._rejection(line, calls.get(line.call or "")) for line in lines],
            "reasons": self._index.reasons_of("rejected"),
            "chosen": list(reasons),
            "next": following,
        }

    def actions(self, query: Query) -> Data:
        """Return one page from the list of operator actions."""
        found, following = self._load_lines("acted", query, ())
        shown = [
            {
                **action_data(line),
                "call": line.call,
                "tool": line.tool or "",
                "known": self._index.has(line.call),
            }
            for one in found
            if isinstance(line := one.line, ActedLine)
        ]
        return {"actions": shown, "next": following}

    def _load_lines(self, event: str, query: Query, reasons: Sequence[str]) -> tuple[list[ListedLine], str | None]:
        after = _parse_line_position(query.get("after", [""])[-1])
        found = self._index.listed_lines(event, reasons=reasons, limit=_PAGE_ROWS + 1, after=after)
        shown = found[:_PAGE_ROWS]
        at, file, offset = shown[-1].place if shown else (0.0, 0, 0)
        return shown, f"{at!r}:{file}:{offset}" if len(found) > _PAGE_ROWS else None

    def _row(self, row: Row) -> Data:
        until: float | None = row["until"]
        awaited = [f"the approval {approval}" for approval in row["awaited"]]
        waits = listed_text([*row["pending"], *awaited], _MAX_NAMES)
        if waits and until is not None:
            waits += f" ({'until' if until > time.time() else 'expired'} {clock_text(until)})"
        is_explained = row["failure"] is not None or row["state"] in ("failed", "declined")
        return {
            "call": row["call"],
            "tool": row["tool"],
            "state": row["state"],
            "symbol": STATE_SYMBOLS.get(row["state"], "▸"),
            "rounds": row["rounds"],
            "reasons": row["reasons"],
            "instances": row["instances"],
            "build": build_text(row["build"]),
            "started": clock_text(row["started_at"]),
            "server": duration_text(row["server_ms"]),
            "waiting": duration_text(row["waited_ms"]) if row["waited_ms"] else "-",
            "why": self._why(row["call"], row["last_at"]) if is_explained else "",
            "waits": waits,
        }

    def _explain(self, call_id: str, last_at: float) -> str:
        """Explain why a call ended without a result. `last_at` is needed only as part of the cache key."""
        call = self._index.find(call_id)
        end = explain_end(call) if call is not None else None
        return end[1] if end is not None else ""

    def _rejection(self, line: RejectedLine, call: TracedCall | None) -> Data:
        return {
            "at": clock_text(line.at),
            "reason": line.reason.value,
            "tool": line.tool or "",
            "instance": line.instance,
            "call": line.call,
            "known": call is not None,
            "text": explain_rejection(line, call),
        }


def _parse_filter(chosen: Query) -> tuple[CallFilter, CallPosition | None]:
    """Return a query's filter, and the position after which the list starts.

    Raises:
        ValueError: A time or the position is invalid.
    """
    since, before = _parse_time(chosen, "since"), _parse_time(chosen, "before")
    after = chosen.get("after")
    start = chosen.get("q", [""])[-1].strip()
    facets = {kind: chosen[kind] for kind in FACETS if kind in chosen}
    return CallFilter(facets, since=since, before=before, start=start), None if after is None else _position(after[-1])


def _parse_time(chosen: Query, name: str) -> float | None:
    try:
        return time_of(chosen[name][-1]) if name in chosen else None
    except ValueError as error:
        raise ValueError(f"{name} must be an age, such as 10m or 2h, or a date") from error


def _parse_number(text: str) -> int:
    number = int(text)
    if number not in range(_MAX_NUMBER):
        raise ValueError
    return number


def _position(text: str) -> CallPosition:
    started, _, number = text.partition(":")
    try:
        return float(started), _parse_number(number)
    except ValueError:
        raise ValueError("after must be the `next` value of an earlier response") from None


def _parse_line_position(text: str) -> tuple[float, int, int] | None:
    try:
        at, file, offset = text.split(":")
        return float(at), _parse_number(file), _parse_number(offset)
    except ValueError:
        return None
