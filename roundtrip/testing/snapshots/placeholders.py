"""Numbered placeholders for values that change from run to run."""

import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from roundtrip.questions.wire import TICKET
from roundtrip.untrusted import leaves_of

_MIN_ID_CHARS: Final = 20
"""The minimum length at which a run of letters and digits may be an id."""
_MIN_AVERAGE_WORD_CHARS: Final = 4
_RECENT_SECONDS: Final = 3600.0
"""Maximum number of seconds between now and a time that was probably read from a clock."""

_EDGE: Final = r"(?<![A-Za-z0-9_-])"
_END: Final = r"(?![A-Za-z0-9_-])"
_UUID: Final = r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"
_KINDS: Final = {
    "ticket": TICKET.pattern,
    "page": r"(?<=/ask/)[A-Za-z0-9_-]{12}\.[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])",
    "handle": r"(?<=handle=')[A-Za-z0-9_-]{12}\.[A-Za-z0-9_-]{16,}(?=')",
    "token": rf"{_EDGE}r3[se][A-Za-z0-9_-]{{4}}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{{22}}{_END}",
    "time": r"(?<![0-9])\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:?\d\d)?(?![0-9])",
    "uuid": _UUID,
    # Use one look-behind per host, because a look-behind must have a fixed width.
    "port": "|".join(rf"(?<={re.escape(host)}:)\d{{1,5}}(?!\d)" for host in ("localhost", "127.0.0.1", "[::1]")),
    "address": r"(?<=\bat )0x[0-9a-fA-F]{6,16}\b",
    "padded": r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{18,}={1,2}(?![A-Za-z0-9+/=])",
    "run": rf"{_EDGE}[A-Za-z0-9_-]{{16,}}{_END}",
}

_HEX: Final = re.compile(r"[0-9a-fA-F]{16,}")
_MIN_NUMBER_ID_CHARS: Final = 24
_ULID: Final = re.compile(r"(?=[0-9]*[A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}")
_WHOLE_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4}){5,}")
_WORD_PART: Final = re.compile(r"\d{4}-\d\d-\d\d|[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_PRONOUNCEABLE: Final = re.compile(r"(?=[^aeiouy]*[aeiouy])(?!.*[^aeiouy]{6})", re.IGNORECASE)
_TRACE: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""A `traceparent`. The other patterns would miss a `traceparent` whose ids have no letters."""
_INNER_ID: Final = re.compile(rf"{_UUID}|(?<![0-9A-Za-z])[0-9a-fA-F]{{16,}}(?![0-9A-Za-z])")


class Placeholders:
    """Placeholders for changing values. Equal values share a placeholder, and numbers follow the order of appearance.

    These values are replaced anywhere in a text.

    - `<token 1>`: the call's request states, from any server, and other roundtrip tokens.
    - `<ticket 1>`: tickets in URLs.
    - `<page 1>`, `<handle 1>`: the secrets of question pages and waiting calls.
    - `<id 1>`: UUIDs, ULIDs and both ids in a `traceparent`.
      Also hexadecimal digits in a row: at least 16 with a letter, or at least 24 without one.
      Also base64 that has padding or is the whole text.
      Also 20 or more mixed-case letters and digits in a row (with `-` and `_`), unless they form words:
      `SummerMenu2026-Vegetarian` stays.
    - `<time 1>`: a date with a time, including seconds, with or without a zone (RFC 3339), within an hour of now.
    - `<port 1>`: the port after `localhost`, `127.0.0.1` or `[::1]`.
    - `<address 1>`: the address in a `repr`, such as `<Seat object at 0x7f3a5c0d1e80>`.

    Values that the test itself wrote stay unchanged. All other values also stay unchanged: dates, other times, numbers
    (including times in seconds), words, short ids, and ids of lowercase letters and digits.
    """

    def __init__(self, tokens: Iterable[str | None] = (), *, keep: object = None) -> None:
        self._kept_texts = frozenset(leaf for _, leaf in leaves_of(keep) if isinstance(leaf, str))
        self._numbers: dict[str, dict[str, str]] = {}
        # Replace the longest token first, because one token may begin with another.
        known = sorted({token for token in tokens if token}, key=lambda token: (-len(token), token))
        # A short token may be part of a word, so replace it only if it is the whole text.
        self._short = frozenset(token for token in known if len(token) < _MIN_ID_CHARS)
        longer = "|".join(re.escape(token) for token in known if token not in self._short)
        kinds = {**({"known": f"{_EDGE}(?:{longer}){_END}"} if longer else {}), **_KINDS}
        self._pattern = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()))

    def apply(self, value: Any) -> Any:
        """Replace the changing parts of all texts in a value, including mapping keys, in order."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.apply(name): self.apply(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self.apply(item) for item in cast("list[Any]", value)]
        return value

    def text(self, text: str) -> str:
        """Replace a text's changing parts."""
        if text in self._short:
            return self.number("token", text)
        if text in self._kept_texts:
            return text
        if len(text) % 4 == 0 and _WHOLE_BASE64.fullmatch(text) is not None and _is_random(text):
            return self.number("id", text)
        return self._pattern.sub(self._replace, text)

    def number(self, kind: str, value: str) -> str:
        """Return the numbered placeholder for a changing value."""
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value, f"<{kind} {len(numbers) + 1}>")

    def _replace(self, match: re.Match[str]) -> str:
        kind, value = cast("str", match.lastgroup), match[0]
        if value in self._kept_texts or (kind == "time" and not _is_recent(value)):
            return value
        if kind == "run":
            if (trace := _TRACE.fullmatch(value)) is not None:
                version, call, span, flags = trace.groups()
                return f"{version}-{self.number('id', call)}-{self.number('id', span)}-{flags}"
            if not _is_id(value):
                return _INNER_ID.sub(self._replace_inner, value)
            kind = "id"
        return self.number({"known": "token", "uuid": "id", "padded": "id"}.get(kind, kind), value)

    def _replace_inner(self, match: re.Match[str]) -> str:
        return self.number("id", match[0]) if "-" in match[0] or _is_id(match[0]) else match[0]


def _is_recent(text: str) -> bool:
    """Return True if a time is so close to now that it was probably read from a clock."""
    try:
        when = datetime.fromisoformat(text.replace(",", ".").upper())
    except ValueError:
        return False
    # A time without a zone may be local time or UTC.
    readings = [when] if when.tzinfo is not None else [when.replace(tzinfo=UTC), when.astimezone()]
    return any(abs(reading.timestamp() - time.time()) <= _RECENT_SECONDS for reading in readings)


def _is_id(run: str) -> bool:
    if _HEX.fullmatch(run) is not None:
        return not run.isdigit() or len(run) >= _MIN_NUMBER_ID_CHARS
    return _ULID.fullmatch(run) is not None or (len(run) >= _MIN_ID_CHARS and _is_random(run))


def _is_random(run: str) -> bool:
    """Return True if a run of mixed-case letters and digits does not look like words."""
    if run.isdigit() or run.lower() == run or run.upper() == run:
        return False
    parts = _WORD_PART.findall(run)
    if sum(map(len, parts)) < _MIN_AVERAGE_WORD_CHARS * len(parts):
        return True
    return not all(_is_word(part) for part in parts)


def _is_word(part: str) -> bool:
    return not part.isalpha() or (len(part) > 1 and (part.isupper() or _PRONOUNCEABLE.match(part) is not None))
