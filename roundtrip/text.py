"""Display text: make untrusted text safe for a terminal, shorten build names, and suggest near names."""

import json
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (including bidi overrides), surrogate, line separator and paragraph separator."""

_JOINERS: Final = "\u200c\u200d"
"""Format characters that Persian text and emoji need. They neither move the cursor nor reverse text."""

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
"""Letters, marks and symbols without a glyph. A text looks the same with and without them."""

_EMOJI: Final = re.compile(
    "(?<=[#*0-9\u00a9\u00ae\u203c\u2049\u2100-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])"
)
"""Matches a variation selector that follows a symbol. It decides whether the symbol is shown as an emoji or as text."""

_DIGEST: Final = re.compile(r"[0-9a-f]{13,}")
_MAX_DIGEST_CHARS: Final = 12
_MAX_BUILD_CHARS: Final = 40


def build_text(build: str | None) -> str:
    """Return a build name for display, without quotes. A long digest is truncated, and an unknown build is `-`."""
    if not build:
        return "-"
    if _DIGEST.fullmatch(build):
        return build[:_MAX_DIGEST_CHARS]
    return printable(shortened(build, _MAX_BUILD_CHARS))


def printable(text: str, *, keep_newlines: bool = False) -> str:
    r"""Escape all characters that a terminal would interpret or hide. An escape character becomes `\x1b`.

    Newlines are kept only with `keep_newlines`, and normalized to `\n`.
    """
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    if keep_newlines:
        return "\n".join(_escaped(line) for line in text.replace("\r\n", "\n").split("\n"))
    return _escaped(text)


def shortened(text: str, longest: int, *, ending: str = "…") -> str:
    """Return a text with an ending in place of what exceeds the longest allowed length."""
    return text if len(text) <= longest else f"{text[:longest]}{ending}"


def iso_text(at: float, *, timespec: str = "seconds") -> str:
    """Return a time as ISO 8601 in UTC, such as `2026-07-28T12:00:00Z`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def quoted(text: str) -> str:
    r"""Return the text in double quotes, as in JSON. The quoted text can neither close the quotes nor reverse the text
    after them.
    """
    return printable(json.dumps(text, ensure_ascii=False))


def suggestion(word: str, choices: Iterable[str], *, before: str = "") -> str:
    """Return a suggestion with the nearest known word, or an empty text."""
    # Lazy: only mistakes need this module.
    from difflib import get_close_matches

    matches = get_close_matches(word, list(choices), n=1)
    return f"; did you mean '{before}{matches[0]}'?" if matches else ""


def without_invisible(text: str) -> str:
    """Return a text without invisible characters, for comparisons."""
    return "".join(char for char in text if not _is_invisible(char))


def columns_of(text: str) -> int:
    """Return a line's width on a terminal. Wide characters take two columns, and combining characters none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.category(char) in ("Mn", "Me") for char in text)


def _escaped(text: str) -> str:
    emoji_selectors = {match.start() for match in _EMOJI.finditer(text)}
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if _is_invisible(char) and char not in _JOINERS and position not in emoji_selectors
        else char
        for position, char in enumerate(text)
    )


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE or _BLANK.match(char) is not None
