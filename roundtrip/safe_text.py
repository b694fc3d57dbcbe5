"""Make untrusted text safe for a terminal, and write builds alike in every view."""

import json
import re
import unicodedata
from typing import Final

__all__ = ["build_text", "printable", "quoted"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of control, format (with bidi overrides), surrogate, line and paragraph separator characters."""

_JOINERS: Final = "\u200c\u200d"
"""Format characters of Persian and emoji, which neither move the cursor nor reverse text."""

_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and symbols without a glyph: texts with and without one look alike."""

_DIGEST: Final = re.compile(r"[0-9a-f]{13,}")
_MAX_DIGEST_CHARS: Final = 12
_MAX_BUILD_CHARS: Final = 40


def build_text(build: str | None) -> str:
    """Return a build for display: unquoted, a long digest truncated, and `-` for an unknown one."""
    if not build:
        return "-"
    if _DIGEST.fullmatch(build):
        return build[:_MAX_DIGEST_CHARS]
    return printable(build if len(build) <= _MAX_BUILD_CHARS else f"{build[:_MAX_BUILD_CHARS]}…")


def printable(text: str, *, keep_newlines: bool = False) -> str:
    r"""Escape all characters that a terminal would obey or not show: an escape character becomes `\x1b`.

    Newlines stay only with `keep_newlines`, and then as `\n`.
    """
    if text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    if keep_newlines:
        return "\n".join(_spelled_out(line) for line in text.replace("\r\n", "\n").split("\n"))
    return _spelled_out(text)


def quoted(text: str) -> str:
    r"""Return the text in double quotes, as in JSON: it can neither end its quotes nor reverse the text after it."""
    return printable(json.dumps(text, ensure_ascii=False))


def _spelled_out(text: str) -> str:
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if (unicodedata.category(char) in _INVISIBLE and char not in _JOINERS) or char in _BLANK
        else char
        for char in text
    )
