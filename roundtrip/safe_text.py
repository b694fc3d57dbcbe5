"""Text of strangers, made safe to show on a terminal, and builds, spelled alike wherever one is shown."""

import json
import re
import unicodedata
from typing import Final

__all__ = ["build_text", "printable", "quoted"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format (bidi overrides among them), surrogate, line and paragraph separator."""

_JOINERS: Final = "\u200c\u200d"
"""Format characters that Persian and emoji are spelled with; they move no cursor and turn no text around."""

_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and symbols that show nothing: two texts with and without one look alike."""

_DIGEST: Final = re.compile(r"[0-9a-f]{13,}")
_MAX_DIGEST_CHARS: Final = 12
_MAX_BUILD_CHARS: Final = 40


def build_text(build: str | None) -> str:
    """A build, as every view shows it: without quotes, a long digest by its beginning, and `-` where none is known."""
    if not build:
        return "-"
    if _DIGEST.fullmatch(build):
        return build[:_MAX_DIGEST_CHARS]
    return printable(build if len(build) <= _MAX_BUILD_CHARS else f"{build[:_MAX_BUILD_CHARS]}…")


def printable(text: str, *, keep_newlines: bool = False) -> str:
    r"""The text with everything a terminal would obey, or not show, spelled out: an escape character becomes `\x1b`.

    Line ends stay only if asked for, and then as `\n`.
    """
    if text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    if keep_newlines:
        return "\n".join(_spelled_out(line) for line in text.replace("\r\n", "\n").split("\n"))
    return _spelled_out(text)


def quoted(text: str) -> str:
    r"""The text between double quotes, as JSON has it: no text can end its own quotes, or turn around what follows."""
    return printable(json.dumps(text, ensure_ascii=False))


def _spelled_out(text: str) -> str:
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if (unicodedata.category(char) in _INVISIBLE and char not in _JOINERS) or char in _BLANK
        else char
        for char in text
    )
