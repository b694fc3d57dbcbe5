"""Formatted Python source for JSON values and calls. Every string is escaped."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from roundtrip.text import columns_of

WIDTH: Final = 120
"""Maximum number of columns in a line."""

_STEP: Final = "    "


class UsedName(str):
    """A name that stands for a value in the source."""

    __slots__ = ()


def assignment(name: str, value: object) -> str:
    """Return the source of an assignment."""
    source = literal(value, used=len(name) + 3)
    if not _has_parts(value) and columns_of(f"{name} = {source}") > WIDTH >= columns_of(_STEP + source):
        source = f"(\n{_STEP}{source}\n)"
    return f"{name} = {source}"


def invocation(before: str, arguments: Sequence[str], *, indent: str = "") -> str:
    """Return the source of a call. If the call does not fit on one line, put each argument on a separate line."""
    together = ", ".join(arguments)
    if is_short(line := f"{indent}{before}({together})"):
        return line
    inner = indent + _STEP
    spread = [inner + together] if is_short(inner + together) else [f"{inner}{each}," for each in arguments]
    return "\n".join([f"{indent}{before}(", *spread, f"{indent})"])


def is_short(source: str) -> bool:
    """Return True if the source is a single line that fits into `WIDTH`."""
    return "\n" not in source and columns_of(source) <= WIDTH


def literal(value: object, *, indent: str = "", used: int = 0, after: int = 0) -> str:
    """Return the source of a value.

    Args:
        value: JSON data, which may contain names.
        indent: The line's indent.
        used: The number of columns between the indent and the value.
        after: The number of columns after the value.
    """
    flat = _flat(value)
    if len(indent) + used + columns_of(flat) + after <= WIDTH or not _has_parts(value):
        return flat
    inner = indent + _STEP
    opening, closing = ("{", "}") if isinstance(value, Mapping) else ("[", "]")
    lines = [f"{inner}{part}," for part in _parts(cast("object", value), inner)]
    return "\n".join([opening, *lines, indent + closing])


def _parts(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            name = f"{_flat(key)}: "
            yield name + literal(inner, indent=indent, used=columns_of(name), after=1)
    else:
        for inner in cast("Sequence[object]", value):
            yield literal(inner, indent=indent, after=1)


def _has_parts(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(cast("Sequence[object]", value))


def _flat(value: object) -> str:
    """Return a value's source code as a single line."""
    if isinstance(value, UsedName):
        return str(value)
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
    raise TypeError(f"value must be JSON data, got {type(value).__name__}")


def _text(text: str) -> str:
    # The added double quote makes repr() use single quotes around the text. repr() escapes unprintable characters.
    inner = repr('"' + text)[2:-1]
    if text.count('"') > text.count("'"):
        return f"'{inner}'"
    inner = inner.replace("\\'", "'").replace('"', '\\"')
    return f'"{inner}"'
