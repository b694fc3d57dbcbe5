"""What changes from run to run, as numbered placeholders."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from roundtrip.questions.wire import TICKET

__all__ = ["Placeholders"]

_ID_LENGTH: Final = 20
"""Characters from which letters and digits in a row may be an id."""
_WORD_LENGTH: Final = 4
"""How long words are at least, on average."""

_RECENT: Final = 3600.0
"""Seconds from now within which a time is one that a clock has told."""

_EDGE: Final = r"(?<![A-Za-z0-9_-])"
_END: Final = r"(?![A-Za-z0-9_-])"
_UUID: Final = r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"
_KINDS: Final = {
    "ticket": TICKET.pattern,
    "token": rf"{_EDGE}r3[se][A-Za-z0-9_-]{{4}}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{{22}}{_END}",
    "time": r"(?<![0-9])\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:?\d\d)?(?![0-9])",
    "uuid": _UUID,
    # One each, as a look-behind is of one width.
    "port": "|".join(rf"(?<={re.escape(host)}:)\d{{1,5}}(?!\d)" for host in ("localhost", "127.0.0.1", "[::1]")),
    "address": r"(?<=\bat )0x[0-9a-fA-F]{6,16}\b",
    "padded": r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{18,}={1,2}(?![A-Za-z0-9+/=])",
    "run": rf"{_EDGE}[A-Za-z0-9_-]{{16,}}{_END}",
}

_HEX: Final = re.compile(r"[0-9a-fA-F]{16,}")
_HEX_NUMBER: Final = 24
_ULID: Final = re.compile(r"(?=[0-9]*[A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}")
_WHOLE: Final = re.compile(r"(?:[A-Za-z0-9+/]{4}){5,}")
_PART: Final = re.compile(r"\d{4}-\d\d-\d\d|[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_UTTERABLE: Final = re.compile(r"(?=[^aeiouy]*[aeiouy])(?!.*[^aeiouy]{6})", re.IGNORECASE)
_WITHIN: Final = re.compile(rf"{_UUID}|(?<![0-9A-Za-z])[0-9a-fA-F]{{16,}}(?![0-9A-Za-z])")


class Placeholders:
    """Replaces what changes from run to run: the same value by the same placeholder, numbered as they turn up.

    Replaced, wherever they are in a text:

    - `<token 1>`: the request states of the call, whoever's server wrote them, and other tokens of roundtrip;
    - `<ticket 1>`: tickets in URLs;
    - `<id 1>`: UUIDs; 16 or more hexadecimal digits with a letter among them, or 24 without one; ULIDs; base64 with its
      padding or as a whole text; and 20 or more letters and digits in a row (`-` and `_` among them), with capital and
      small letters, that are not made of words: `SummerMenu2026-Vegetarian` stays;
    - `<time 1>`: a date with a time of day, seconds included, with or without a zone (RFC 3339), if it is within an
      hour of now;
    - `<port 1>`: the port after `localhost`, `127.0.0.1` or `[::1]`;
    - `<address 1>`: the place in memory that a `repr` names, as in `<Seat object at 0x7f3a5c0d1e80>`.

    What the test has written itself stays, in arguments and answers as anywhere else. So does everything else: dates,
    other times, numbers (also times in seconds), words, short ids, ids of small letters and digits alone.
    """

    def __init__(self, tokens: Iterable[str | None] = (), *, said: object = None) -> None:
        self._said = frozenset(_texts(said))
        self._numbers: dict[str, dict[str, str]] = {}
        # Longest first, as one may begin with another.
        known = sorted({token for token in tokens if token}, key=lambda token: (-len(token), token))
        # A short one, as some servers write, would be found in words.
        self._short = frozenset(token for token in known if len(token) < _ID_LENGTH)
        longer = "|".join(re.escape(token) for token in known if token not in self._short)
        kinds = {**({"known": f"{_EDGE}(?:{longer}){_END}"} if longer else {}), **_KINDS}
        self._pattern = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()))

    def over(self, value: Any) -> Any:
        """A value with every text in it replaced, names included, in its order."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.over(name): self.over(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self.over(item) for item in cast("list[Any]", value)]
        return value

    def text(self, text: str) -> str:
        """A text with what changes replaced."""
        if text in self._short:
            return self.number("token", text)
        if text in self._said:
            return text
        if len(text) % 4 == 0 and _WHOLE.fullmatch(text) is not None and _is_random(text):
            return self.number("id", text)
        return self._pattern.sub(self._replaced, text)

    def number(self, kind: str, value: str) -> str:
        """The placeholder of a value that is known to change."""
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value, f"<{kind} {len(numbers) + 1}>")

    def _replaced(self, match: re.Match[str]) -> str:
        kind, value = cast("str", match.lastgroup), match[0]
        if value in self._said or (kind == "time" and not _is_recent(value)):
            return value
        if kind == "run":
            if not _is_id(value):
                return _WITHIN.sub(self._within, value)
            kind = "id"
        return self.number({"known": "token", "uuid": "id", "padded": "id"}.get(kind, kind), value)

    def _within(self, match: re.Match[str]) -> str:
        return self.number("id", match[0]) if "-" in match[0] or _is_id(match[0]) else match[0]


def _is_recent(text: str) -> bool:
    """Whether a time was taken from a clock, as far as can be told."""
    try:
        when = datetime.fromisoformat(text.replace(",", ".").upper())
    except ValueError:
        return False
    # Without a zone it is local time, or UTC.
    readings = [when] if when.tzinfo is not None else [when.replace(tzinfo=UTC), when.astimezone()]
    return any(abs(reading.timestamp() - time.time()) <= _RECENT for reading in readings)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _texts(item)


def _is_id(run: str) -> bool:
    if _HEX.fullmatch(run) is not None:
        return not run.isdigit() or len(run) >= _HEX_NUMBER
    return _ULID.fullmatch(run) is not None or (len(run) >= _ID_LENGTH and _is_random(run))


def _is_random(run: str) -> bool:
    """Whether letters and digits are not words, with capitals where words have them."""
    if run.isdigit() or run.lower() == run or run.upper() == run:
        return False
    parts = _PART.findall(run)
    if sum(map(len, parts)) < _WORD_LENGTH * len(parts):
        return True
    return not all(_is_word(part) for part in parts)


def _is_word(part: str) -> bool:
    return not part.isalpha() or (len(part) > 1 and (part.isupper() or _UTTERABLE.match(part) is not None))
