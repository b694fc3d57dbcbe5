"""JSON values as Python source, laid out as formatters do. Whatever a text holds, it stays inside its quotes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

__all__ = ["WIDTH", "assignment", "literal"]

WIDTH: Final = 88
"""Characters of a line, as formatters count by default."""

_STEP: Final = "    "
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def assignment(name: str, value: object) -> str:
    """Source that gives a value a name."""
    return f"{name} = {literal(value, used=len(name) + 3)}"


def literal(value: object, *, indent: str = "", used: int = 0, after: int = 0) -> str:
    """A value as source.

    Args:
        value: A value in JSON form.
        indent: What its line begins with.
        used: How many characters of the line, the indent left out, come before it.
        after: How many come after it.
    """
    flat = _flat(value)
    if len(indent) + used + len(flat) + after <= WIDTH or not _has_parts(value):
        return flat
    inner = indent + _STEP
    opening, closing = ("{", "}") if isinstance(value, Mapping) else ("[", "]")
    lines = [f"{inner}{part}," for part in _parts(cast("object", value), inner)]
    return "\n".join([opening, *lines, indent + closing])


def _parts(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            name = f"{_flat(key)}: "
            yield name + literal(inner, indent=indent, used=len(name), after=1)
    else:
        for inner in cast("Sequence[object]", value):
            yield literal(inner, indent=indent, after=1)


def _has_parts(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(cast("Sequence[object]", value))


def _flat(value: object) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{_flat(key)}: {_flat(inner)}" for key, inner in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flat(inner) for inner in cast("Sequence[object]", value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _text(text: str) -> str:
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(_character(char, quote) for char in text) + quote


def _character(char: str, quote: str) -> str:
    if char == quote:
        return f"\\{char}"
    if char in _SHORT:
        return _SHORT[char]
    # Control and format characters, separators of lines, and halves of a pair.
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
