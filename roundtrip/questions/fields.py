"""Form fields, read from the schema that a server sent, and checks for their values.

The schema is untrusted: the reader skips every part whose shape it does not know.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Final, cast
from urllib.parse import urlsplit

from roundtrip.text import printable
from roundtrip.untrusted import list_of, mapping_of

_EMAIL_PATTERN: Final = re.compile(r"[^@\s]+@[^@\s]+")
_DATE_PATTERN: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME_PATTERN: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


class FieldInvalid(Exception):
    """A value does not fit its field; the message describes a value that fits."""


class FieldKind(Enum):
    """Kind of value that a field holds."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    YES_NO = "yes or no"
    ONE = "one of the choices"
    SEVERAL = "some of the choices"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """One value that a field may have, and its title."""

    value: str
    title: str


@dataclass(frozen=True, slots=True)
class FormField:
    """One form field."""

    name: str
    kind: FieldKind
    required: bool = False
    title: str | None = None
    description: str | None = None
    choices: tuple[FieldChoice, ...] = ()
    format: str | None = None
    least: float | None = None
    """The minimum value, text length or number of choices."""
    most: float | None = None
    has_default: bool = False
    default: Any = None

    @property
    def bounds(self) -> str | None:
        """Describe the field's limits in words, such as `at least 3 characters`. Return None if there is no limit."""
        return self.bounds_in(_number)

    def bounds_in(self, number: Callable[[float], str]) -> str | None:
        """Describe the field's limits as `bounds` does, but format the numbers with the given function."""
        unit = {FieldKind.TEXT: " characters", FieldKind.SEVERAL: " of them"}.get(self.kind, "")
        match (self.least, self.most):
            case (None, None):
                return None
            case (least, None):
                return f"at least {number(least)}{unit}"
            case (None, most):
                return f"at most {number(most)}{unit}"
            case (least, most):
                return f"{number(least)} to {number(most)}{unit}"

    def check(self, value: Any, *, has_format: bool = True) -> None:
        """Raise FieldInvalid unless a JSON value fits the field. `has_format=False` skips the check of a string's
        format.
        """
        wanted, is_of_kind = _RULES[self.kind]
        if not is_of_kind(value):
            raise FieldInvalid(f"it must be {wanted}")
        if self.kind in (FieldKind.ONE, FieldKind.SEVERAL):
            allowed = {choice.value for choice in self.choices}
            chosen = cast("list[str]", value if self.kind is FieldKind.SEVERAL else [value])
            if not allowed.issuperset(chosen):
                raise FieldInvalid(f"it must be among {', '.join(printable(c.value) for c in self.choices)}")
        self._check_size(value)
        if has_format and self.format is not None and not FORMATS[self.format][1](value):
            raise FieldInvalid(f"it must be {FORMATS[self.format][0]}")

    def _check_size(self, value: Any) -> None:
        if self.kind in (FieldKind.TEXT, FieldKind.SEVERAL):
            size = len(value)
        elif self.kind in (FieldKind.WHOLE, FieldKind.NUMBER):
            size = value
        else:
            return
        if (self.least is not None and size < self.least) or (self.most is not None and size > self.most):
            raise FieldInvalid(f"it must be {self.bounds}")


_KINDS: Final = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.WHOLE,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.YES_NO,
}


def fields_of(schema: Mapping[str, Any]) -> list[FormField]:
    """Return a form's fields, in the server's order."""
    required = schema.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    return [_field(name, shape, name in names) for name, shape in mapping_of(schema.get("properties")).items()]


def _field(name: str, shape: Any, required: bool) -> FormField:
    parts = mapping_of(shape)
    kind, choices = _kind_of(parts)
    low, high = {FieldKind.TEXT: ("minLength", "maxLength"), FieldKind.SEVERAL: ("minItems", "maxItems")}.get(
        kind, ("minimum", "maximum")
    )
    format = parts.get("format")
    return FormField(
        name=name,
        kind=kind,
        required=required,
        title=_text(parts.get("title")),
        description=_text(parts.get("description")),
        choices=choices,
        format=format if kind is FieldKind.TEXT and isinstance(format, str) and format in FORMATS else None,
        least=_bound(parts.get(low)),
        most=_bound(parts.get(high)),
        has_default=parts.get("default") is not None,
        default=parts.get("default"),
    )


def _kind_of(parts: Mapping[str, Any]) -> tuple[FieldKind, tuple[FieldChoice, ...]]:
    kind = parts.get("type")
    if kind == "array":
        choices = _choices(mapping_of(parts.get("items")))
        return (FieldKind.SEVERAL, choices) if choices else (FieldKind.JSON, ())
    if choices := _choices(parts):
        return FieldKind.ONE, choices
    return _KINDS.get(kind, FieldKind.JSON) if isinstance(kind, str) else FieldKind.JSON, ()


def _choices(parts: Mapping[str, Any]) -> tuple[FieldChoice, ...]:
    for word in ("oneOf", "anyOf"):
        options = [mapping_of(option) for option in list_of(parts.get(word))]
        if options and all(isinstance(option.get("const"), str) for option in options):
            return tuple(
                FieldChoice(option["const"], _text(option.get("title")) or option["const"]) for option in options
            )
    values = [value for value in list_of(parts.get("enum")) if isinstance(value, str)]
    titles = [title for title in list_of(parts.get("enumNames")) if isinstance(title, str)]
    return tuple(
        FieldChoice(value, title)
        for value, title in zip(values, titles if len(titles) == len(values) else values, strict=True)
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _bound(value: Any) -> float | None:
    return value if _is_number(value) else None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else str(value)


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _is_whole(value)


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


_RULES: Final[Mapping[FieldKind, tuple[str, Callable[[Any], bool]]]] = {
    FieldKind.TEXT: ("text", lambda value: isinstance(value, str)),
    FieldKind.WHOLE: ("a whole number", _is_whole),
    FieldKind.NUMBER: ("a number", _is_number),
    FieldKind.YES_NO: ("yes or no (true or false in a file)", lambda value: isinstance(value, bool)),
    FieldKind.ONE: ("one of the choices", lambda value: isinstance(value, str)),
    FieldKind.SEVERAL: ("a list of choices", _is_texts),
    FieldKind.JSON: ("JSON", lambda value: True),
}
"""For each kind, its description and a function that checks a value."""
FORMATS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "email": ("an e-mail address, such as ada@example.com", lambda text: _EMAIL_PATTERN.fullmatch(text) is not None),
    "uri": ("an address with its scheme, such as https://example.com", _is_uri),
    "date": ("a date, such as 2026-07-28", _is_date),
    "date-time": ("a date and time, such as 2026-07-28T09:30:00Z", _is_date_time),
}
"""For each format, its description and a function that checks a string."""
