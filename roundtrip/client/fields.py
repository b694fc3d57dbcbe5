"""One field of a form: its label and hint, reading a typed line, and checking a value."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Final, cast
from urllib.parse import urlsplit

from roundtrip.safe_text import printable

__all__ = ["FORMATS", "FieldChoice", "FieldInvalid", "FieldKind", "FormField"]

_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")
_WHOLE_PATTERN: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_EMAIL_PATTERN: Final = re.compile(r"[^@\s]+@[^@\s]+")
_DATE_PATTERN: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME_PATTERN: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EMPTY_TEXT: Final = '""'


class FieldInvalid(Exception):
    """A value does not fit its field; the message names a value that would."""


class FieldKind(Enum):
    """The kind of values that a field holds."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    YES_NO = "yes or no"
    ONE = "one of the choices"
    SEVERAL = "some of the choices"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """One of the values that a field may have, and its title."""

    value: str
    title: str


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form."""

    name: str
    kind: FieldKind
    required: bool = False
    title: str | None = None
    description: str | None = None
    choices: tuple[FieldChoice, ...] = ()
    format: str | None = None
    least: float | None = None
    """The smallest number, the shortest text or the fewest choices."""
    most: float | None = None
    has_default: bool = False
    default: Any = None

    @property
    def label(self) -> str:
        """Return the title on one line, followed by the name if that differs."""
        title = printable(self.title or self.name)
        name = printable(self.name)
        return title if title.casefold() == name.casefold() else f"{title} [{name}]"

    @property
    def hint(self) -> str:
        """Describe in a few words what to type."""
        parts = [_TYPED[self.kind]]
        if self.format is not None:
            parts = [FORMATS[self.format][0]]
        if (bounds := self._bounds) is not None:
            parts.append(bounds)
        if self.has_default:
            parts.append(f"Enter for {self.shown(self.default)}")
        elif not self.required:
            parts.append("Enter to leave it out")
        return ", ".join(part for part in parts if part)

    @property
    def _bounds(self) -> str | None:
        unit = {FieldKind.TEXT: " characters", FieldKind.SEVERAL: " of them"}.get(self.kind, "")
        match (self.least, self.most):
            case (None, None):
                return None
            case (least, None):
                return f"at least {_number(least)}{unit}"
            case (None, most):
                return f"at most {_number(most)}{unit}"
            case (least, most):
                return f"{_number(least)} to {_number(most)}{unit}"

    def shown(self, value: Any) -> str:
        """Describe a value on one line, in the words of the form."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(self.shown(item) for item in cast("list[object]", value)) or "none"
        if isinstance(value, str):
            title = next((choice.title for choice in self.choices if choice.value == value), None)
            return printable(title) if title is not None else repr(printable(value))
        return printable(json.dumps(value))

    def read(self, typed: str) -> tuple[bool, Any]:
        """Read a typed line: return True and a value, or False if the line leaves the field out.

        Raises:
            FieldInvalid: The line does not fit the field.
        """
        typed = typed.strip()
        if typed:
            value = self._value_of(typed)
        elif self.has_default:
            value = self.default
        elif not self.required:
            return False, None
        elif self.kind is FieldKind.SEVERAL:
            value = cast("list[str]", [])
        else:
            raise FieldInvalid(
                "it is required" + (f"; type {_EMPTY_TEXT} for an empty text" * (self.kind is FieldKind.TEXT))
            )
        self.check(value)
        return True, value

    def _value_of(self, typed: str) -> Any:
        match self.kind:
            case FieldKind.TEXT:
                return "" if typed == _EMPTY_TEXT else typed
            case FieldKind.WHOLE:
                return int(typed) if _WHOLE_PATTERN.fullmatch(typed) else typed
            case FieldKind.NUMBER:
                return int(typed) if _WHOLE_PATTERN.fullmatch(typed) else _decimal(typed)
            case FieldKind.YES_NO:
                return typed.lower() in _YES if typed.lower() in (*_YES, *_NO) else typed
            case FieldKind.ONE:
                return self._chosen(typed)
            case FieldKind.SEVERAL:
                return list(dict.fromkeys(self._chosen(part.strip()) for part in typed.split(",") if part.strip()))
            case FieldKind.JSON:
                return _json(typed)

    def _chosen(self, typed: str) -> str:
        if typed.isascii() and typed.isdigit() and 1 <= int(typed[:9]) <= len(self.choices):
            return self.choices[int(typed[:9]) - 1].value
        found = [choice.value for choice in self.choices if typed in (choice.value, choice.title)]
        if len(found) != 1:
            raise FieldInvalid(f"{printable(typed)!r} is not a choice; type a number from 1 to {len(self.choices)}")
        return found[0]

    def check(self, value: Any) -> None:
        """Raise FieldInvalid unless a JSON value fits."""
        if not _IS[self.kind](value):
            raise FieldInvalid(f"it must be {_WANTED[self.kind]}")
        if self.kind in (FieldKind.ONE, FieldKind.SEVERAL):
            allowed = {choice.value for choice in self.choices}
            chosen = cast("list[str]", value if self.kind is FieldKind.SEVERAL else [value])
            if not allowed.issuperset(chosen):
                raise FieldInvalid(f"it must be among {', '.join(printable(c.value) for c in self.choices)}")
        self._check_size(value)
        if self.format is not None and not FORMATS[self.format][1](value):
            raise FieldInvalid(f"it must be {FORMATS[self.format][0]}")

    def _check_size(self, value: Any) -> None:
        if self.kind in (FieldKind.TEXT, FieldKind.SEVERAL):
            size = len(value)
        elif self.kind in (FieldKind.WHOLE, FieldKind.NUMBER):
            size = value
        else:
            return
        if (self.least is not None and size < self.least) or (self.most is not None and size > self.most):
            raise FieldInvalid(f"it must be {self._bounds}")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else str(value)


def _decimal(typed: str) -> float | str:
    try:
        number = float(typed)
    except ValueError:
        return typed
    return number if math.isfinite(number) else typed


def _json(typed: str) -> Any:
    try:
        return json.loads(typed)
    except ValueError as error:
        raise FieldInvalid("it must be JSON, such as 3, true, [1, 2] or {}") from error


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


def _is_date(text: str) -> bool:
    return _DATE_PATTERN.fullmatch(text) is not None and _can_be_read(date.fromisoformat, text)


def _is_date_time(text: str) -> bool:
    return _TIME_PATTERN.fullmatch(text) is not None and _can_be_read(datetime.fromisoformat, text.upper())


def _is_uri(text: str) -> bool:
    return " " not in text and _can_be_read(urlsplit, text) and urlsplit(text).scheme != ""


def _can_be_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


_IS: Final[Mapping[FieldKind, Callable[[Any], bool]]] = {
    FieldKind.TEXT: lambda value: isinstance(value, str),
    FieldKind.WHOLE: _is_whole,
    FieldKind.NUMBER: _is_number,
    FieldKind.YES_NO: lambda value: isinstance(value, bool),
    FieldKind.ONE: lambda value: isinstance(value, str),
    FieldKind.SEVERAL: _is_texts,
    FieldKind.JSON: lambda value: True,
}
_WANTED: Final = {
    FieldKind.TEXT: "text",
    FieldKind.WHOLE: "a whole number",
    FieldKind.NUMBER: "a number",
    FieldKind.YES_NO: "yes or no (true or false in a file)",
    FieldKind.ONE: "one of the choices",
    FieldKind.SEVERAL: "a list of choices",
    FieldKind.JSON: "JSON",
}
_TYPED: Final = {
    FieldKind.TEXT: "",
    FieldKind.WHOLE: "a whole number",
    FieldKind.NUMBER: "a number",
    FieldKind.YES_NO: "y or n",
    FieldKind.ONE: "type its number",
    FieldKind.SEVERAL: "type their numbers, with commas between",
    FieldKind.JSON: "JSON",
}
FORMATS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "email": ("an e-mail address, such as ada@example.com", lambda text: _EMAIL_PATTERN.fullmatch(text) is not None),
    "uri": ("an address with its scheme, such as https://example.com", _is_uri),
    "date": ("a date, such as 2026-07-28", _is_date),
    "date-time": ("a date and time, such as 2026-07-28T09:30:00Z", _is_date_time),
}
"""The description of each format, and a test whether a text has it."""
