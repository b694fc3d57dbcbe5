"""Fleet figures from the newest calls in an index: instances, response times, and where users leave calls."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from roundtrip.text import build_text
from roundtrip.trace.explaining.wording import clock_text, duration_text
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex
from roundtrip.trace.index.rows import Row
from roundtrip.trace.page.data import Data

_SAMPLE_CALLS: Final = 10_000
"""How many of the newest calls to evaluate. Evaluating more calls would take seconds."""
_PERCENTILES: Final = (0.5, 0.9, 0.99)
_BUCKETS: Final = 60
_BUCKET_SECONDS: Final = (10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_BUCKET_FORMATS: Final = ((24 * 3600, "%Y-%m-%d"), (3600, "%m-%d %H:%M"), (60, "%H:%M"), (0, "%H:%M:%S"))
_MAX_LISTED: Final = 100
_FIRST_TIME_REASONS: Final = frozenset(("new", "other build", "revised"))
"""Reasons for asking a question for the first time."""
_FAILED_STATES: Final = frozenset(("failed", "rejected"))


def fleet_data(index: CallIndex, now: float | None = None) -> Data:
    """Return the figures for the newest calls in an index."""
    now = time.time() if now is None else now
    rows = index.page(CallFilter(), limit=_SAMPLE_CALLS).rows
    starts = [row["started_at"] for row in rows]
    return {
        "sample": {
            "calls": len(rows),
            "since": clock_text(min(starts)) if starts else "",
            "until": clock_text(max(starts)) if starts else "",
            "total": index.count(),
        },
        "instances": _instances(rows, now),
        "builds": _builds(rows),
        "keys": None,
        "tools": _tools(rows),
        "reasons": _reasons(rows),
        "left": _leaving_points(rows, now),
        "minutes": _minutes(starts, rows),
    }


def _instances(rows: Sequence[Row], now: float) -> list[Data]:
    calls, last, builds = Counter[str](), dict[str, float](), defaultdict[str, dict[str, None]](dict)
    behind: dict[str, tuple[float, str]] = {}
    for row in rows:
        for instance, at in row["seen"].items():
            calls[instance] += 1
            last[instance] = max(last.get(instance, 0.0), at)
            # The rows are sorted from the newest call to the oldest.
            builds[instance][row["build"]] = None
        for late, other, seconds in row["lags"]:
            behind[late] = max(behind.get(late, (0.0, "")), (seconds, other))
    return [
        {
            "name": name,
            "calls": number,
            "build": build_text(next(iter(builds[name]))),
            "builds": len(builds[name]),
            "last": f"{duration_text(max(0.0, now - last[name]) * 1000)} ago",
            "clock": _clock_text(behind.get(name)),
        }
        for name, number in calls.most_common(_MAX_LISTED)
    ]


def _clock_text(behind: tuple[float, str] | None) -> str:
    return "" if behind is None else f"at least {duration_text(behind[0] * 1000)} behind {behind[1]}"


def _builds(rows: Iterable[Row]) -> list[Data]:
    starts: dict[str | None, list[float]] = {}
    for row in rows:
        starts.setdefault(row["build"], []).append(row["started_at"])
    return [
        {
            "name": build_text(build),
            "build": build or "",
            "calls": len(some),
            "first": clock_text(min(some)),
            "last": clock_text(max(some)),
        }
        for build, some in list(starts.items())[:_MAX_LISTED]
    ]


def _tools(rows: Iterable[Row]) -> list[Data]:
    by_tool: dict[str, list[Row]] = {}
    for row in rows:
        by_tool.setdefault(row["tool"], []).append(row)
    largest = sorted(by_tool.items(), key=lambda item: -len(item[1]))
    return [_tool(tool, some) for tool, some in largest[:_MAX_LISTED]]


def _tool(tool: str, rows: Sequence[Row]) -> Data:
    starts = [row["started_at"] for row in rows]
    minutes = max((max(starts) - min(starts)) / 60, 1.0)
    # Leave out calls that never waited for an answer.
    waited = [row["waited_ms"] for row in rows if row["waited_ms"]]
    return {
        "tool": tool,
        "calls": len(rows),
        "per_minute": f"{len(rows) / minutes:.1f}",
        "failed": _share(sum(row["state"] in _FAILED_STATES or row["failure"] is not None for row in rows), len(rows)),
        "declined": _share(sum(row["state"] == "declined" for row in rows), len(rows)),
        "server": _percentiles([row["server_ms"] for row in rows]),
        "waiting": _percentiles(waited),
        "rounds": [list(item) for item in sorted(Counter(row["rounds"] for row in rows).items())][:_MAX_LISTED],
        "again": _share(sum(not _FIRST_TIME_REASONS.issuperset(row["reasons"]) for row in rows), len(rows)),
    }


def _percentiles(values: Sequence[float]) -> list[str]:
    ordered = sorted(values)
    if not ordered:
        return ["-"] * len(_PERCENTILES)
    return [duration_text(ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]) for part in _PERCENTILES]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _reasons(rows: Sequence[Row]) -> list[Data]:
    """Count the calls by reason: why a question was asked, or why a token was rejected."""
    calls = Counter(reason for row in rows for reason in row["reasons"])
    return [
        {"reason": reason, "calls": number, "share": _share(number, len(rows))}
        for reason, number in calls.most_common()
    ]


def _leaving_points(rows: Iterable[Row], now: float) -> list[Data]:
    """Return the questions at which users left the call, and the questions for which calls are still waiting."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        for key, how in row["left"]:
            is_expired = how == "waiting" and row["until"] is not None and row["until"] < now
            found.setdefault((row["tool"], key), Counter())["expired" if is_expired else how] += 1
    most = sorted(found.items(), key=lambda item: -item[1].total())
    ways = ("declined", "cancelled", "expired", "waiting")
    return [
        {"tool": tool, "question": key, **{way: how[way] for way in ways}} for (tool, key), how in most[:_MAX_LISTED]
    ]


def _minutes(starts: Sequence[float], rows: Sequence[Row]) -> list[list[Any]]:
    """Return time buckets. Each contains the number of calls that began in it, and how many of these failed."""
    # A transcript may contain any time, even infinity.
    rows = [row for row in rows if math.isfinite(row["started_at"])]
    starts = [start for start in starts if math.isfinite(start)]
    if not starts:
        return []
    last, span = max(starts), max(starts) - min(starts)
    width = next((seconds for seconds in _BUCKET_SECONDS if seconds * _BUCKETS > span), _BUCKET_SECONDS[-1])
    first = int(last // width) - _BUCKETS + 1
    begun, failed = Counter[int](), Counter[int]()
    for row in rows:
        begun[place := int(row["started_at"] // width)] += 1
        failed[place] += row["state"] in _FAILED_STATES or row["failure"] is not None

    return [
        [_bucket_text(place * width, width), begun[place], failed[place]]
        for place in range(first, int(last // width) + 1)
    ]


def _bucket_text(at: float, width: int) -> str:
    try:
        when = datetime.fromtimestamp(at, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return "?"
    return when.strftime(next(format for least, format in _BUCKET_FORMATS if width >= least))
