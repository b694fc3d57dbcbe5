"""Texts for times, sizes and recorded values. Every view uses the same texts."""

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from roundtrip.machine.journal import Chain
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.thinning import MAX_EQUAL
from roundtrip.trace.writing.lines import (
    ActedLine,
    AskedApproval,
    AskedLine,
    Digested,
    FoundIntent,
    Recorded,
    ShownWait,
    StoppedLine,
)

INTENT_TEXTS: Final = {
    Chain.FIRST: "once per intent: first chain",
    Chain.AGAIN: "once per intent: begun again",
}
"""How a call relates to its intent. A tool without `once_per=` has no text."""

_SECOND: Final = 1000.0
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_MAX_QUOTED_CHARS: Final = 200
_ACTION_TEXTS: Final = {
    "cancel": "cancelled",
    "retry": "retried",
    "expire": "expired",
    "remind": "reminded its approvers",
    "answer": "answered",
}
_STOP_TEXTS: Final = {
    "cancelled": "was cancelled",
    "lost": "was lost with its worker",
    "expired": "expired",
    "unstored": "could not be stored",
    "joined": "joined an equal call",
}
_CHANNEL_TEXTS: Final = {
    "url": " on a page that the client shows",
    "local": " on a page in the browser on the server's machine",
    "app": " in an app in the conversation",
    "link": " by a link in the result",
    "page": " on its page",
    "model": " through the model",
}


def duration_text(ms: float) -> str:
    """Return a duration as text: `3 ms`, `1.2 s`, `2 min 5 s`, `1 h 2 min`, `3 d 4 h`."""
    if not math.isfinite(ms) or ms < 0:
        return "?"
    if ms < _SECOND:
        return f"{ms:.1f} ms" if 0 < ms < 9.95 else f"{ms:.0f} ms"
    if ms < 59.95 * _SECOND:
        return f"{ms / _SECOND:.1f} s"
    for unit, name, part, part_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        parts = round(ms / part)
        per_unit = round(unit / part)
        if parts >= per_unit:
            whole, rest = divmod(parts, per_unit)
            return f"{whole} {name} {rest} {part_name}" if rest else f"{whole} {name}"
    return f"{ms / _SECOND:.0f} s"


def distance_text(seconds: float) -> str:
    """Return a time relative to now: `in 3 min`, `2 h ago`."""
    text = duration_text(abs(seconds) * 1000)
    return f"in {text}" if seconds > 0 else f"{text} ago"


def token_text(size: int) -> str:
    """Describe the token that holds a call's state. A size of 0 means that the server stores the state."""
    return f"token of {size_text(size)}" if size else "no token, because the server stores the state"


def size_text(size: int) -> str:
    """Return a size in bytes as text: `812 B`, `1.2 KiB`."""
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"


def clock_text(at: float, *, zone: tzinfo | None = None, precise: bool = False) -> str:
    """Return a date and time, by default in the local time zone."""
    try:
        when = datetime.fromtimestamp(at, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return "?"
    return when.strftime("%Y-%m-%d %H:%M:%S") + (f".{when.microsecond // 1000:03}" if precise else "")


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: `1 leg`, `2 legs`."""
    return f"{number} {noun if number == 1 else f'{noun}s'}"


def listed_text(names: Sequence[str], longest: int) -> str:
    """Return the first names in a list, and how many more there are: `a, b and 3 more`."""
    more = len(names) - longest
    return ", ".join(names[:longest]) + (f" and {more} more" if more > 0 else "")


def omitted_text(call: TracedCall) -> str:
    """Say how many of the call's requests are shown, and which ones. The sentence has no period."""
    cut = ", and only some of the others" if call.omitted.is_cut else ""
    shown = f"{call.request_count - call.omitted.requests} of {call.request_count} requests are shown"
    return f"{shown}: the first and last {MAX_EQUAL} of each set of equal requests{cut}"


def channel_text(asked: AskedLine) -> str:
    """Say where a round's questions were asked, with a leading space. Return an empty text if they were sent to the
    client.
    """
    return "" if asked.rung is None else _CHANNEL_TEXTS[asked.rung]


def wait_text(waits: Sequence[ShownWait]) -> str:
    """Describe what a task waits for: a signal, a point in time, or both."""
    texts: list[str] = []
    for wait in waits:
        until = f"until {clock_text(wait.until)}" if wait.until is not None else ""
        texts.append(f"for the signal {quoted(wait.signal)} {until}".rstrip() if wait.signal is not None else until)
    return " or ".join(texts)


def action_text(line: ActedLine) -> str:
    """Describe an operator action: `cancelled by ana`, `cancel by ana rejected: it has ended already`."""
    if line.outcome == "rejected":
        return f"{line.action} by {line.by} rejected: {line.why}"
    what = f" {quoted(line.why)}" if line.action == "answer" else ""
    return f"{_ACTION_TEXTS[line.action]}{what} by {line.by}"


def stop_text(line: StoppedLine) -> str:
    """Describe how a stored call ended: `the call was cancelled`."""
    return f"the call {_STOP_TEXTS[line.how]}" if line.joined is None else f"the call joined call {quoted(line.joined)}"


def intent_text(found: FoundIntent | None) -> str | None:
    """Describe how a request found its call by the intent. Return None if that is nothing special."""
    if found is None or found.how in ("began", "continued"):
        return None
    if found.how == "recalled":
        return f"recalled the end of call {quoted(found.recalled_from or '?')}"
    if found.recalled_from is not None:
        return f"joined the stored call {quoted(found.recalled_from)}"
    if found.token_leg is None:
        return "joined the call that another request began"
    return f"joined the call that another request continued after leg {found.token_leg}"


def approval_text(approval: AskedApproval, written: Callable[[str], str] = str) -> str:
    """Describe an approval; `written` formats its name and group."""
    return f"the approval {written(approval.key)} by {written(approval.by)}"


def approvals_text(approvals: Sequence[AskedApproval]) -> str:
    """Describe the approvals for which a call waits."""
    return " and ".join(f"for {approval_text(one, quoted)}" for one in approvals)


def quoted(value: Any) -> str:
    """Quote a recorded text, and escape every character that a terminal would interpret."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # `repr` escapes every character that is not printable.
    return repr(text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…")


def recorded_text(recorded: Recorded, *, longest: int | None = None) -> str:
    """Return a revealed value as JSON, cut to `longest` characters. If the value is not revealed, return its size and
    digest.
    """
    if isinstance(recorded, Digested):
        return f"({size_text(recorded.bytes)}, digest {recorded.digest})"
    text = json.dumps(recorded.value, ensure_ascii=False)
    return text if longest is None or len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def times_text(number: int) -> str:
    """Return a number of times as text: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
