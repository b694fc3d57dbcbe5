"""Form fields at a terminal: their labels and hints, and a parser for typed lines."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from roundtrip.questions.fields import FORMATS, FieldInvalid, FieldKind, FormField, fields_of
from roundtrip.text import printable

_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")
_WHOLE_PATTERN: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_EMPTY_TEXT: Final = '""'
_HINTS: Final = {
    FieldKind.TEXT: "",
    FieldKind.WHOLE: "a whole number",
    FieldKind.NUMBER: "a number",
    FieldKind.YES_NO: "y or n",
    FieldKind.ONE: "type its number",
    FieldKind.SEVERAL: "type their numbers, separated by commas",
    FieldKind.JSON: "JSON",
}


def label_of(field: FormField) -> str:
    """Return the field's title on one line, followed by its name if the name differs."""
    title = printable(field.title or field.name)
    name = printable(field.name)
    return title if title.casefold() == name.casefold() else f"{title} [{name}]"


def hint_of(field: FormField) -> str:
    """Describe briefly what the person should type."""
    parts = [_HINTS[field.kind]]
    if field.format is not None:
        parts = [FORMATS[field.format][0]]
    if (bounds := field.bounds) is not None:
        parts.append(bounds)
    if field.has_default:
        parts.append(f"Enter for {shown_value(field, field.default)}")
    elif not field.required:
        parts.append("Enter to leave it out")
    return ", ".join(part for part in parts if part)


def shown_value(field: FormField, value: Any) -> str:
    """Describe a value on one line. Choices are shown with their titles."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown_value(field, item) for item in cast("list[object]", value)) or "none"
    if isinstance(value, str):
        title = next((choice.title for choice in field.choices if choice.value == value), None)
        return printable(title) if title is not None else repr(printable(value))
    return printable(json.dumps(value))


def read_typed(field: FormField, typed: str) -> tuple[bool, Any]:
    """Parse a typed line. Return True and the value. If the line leaves the field out, return False and None.

    Raises:
        FieldInvalid: The line does not fit the field.
    """
    typed = typed.strip()
    if typed:
        value = _parse_value(field, typed)
    elif field.has_default:
        value = field.default
    elif not field.required:
        return False, None
    elif field.kind is FieldKind.SEVERAL:
        value = cast("list[str]", [])
    else:
        raise FieldInvalid(
            "it is required" + (f"; type {_EMPTY_TEXT} for an empty text" * (field.kind is FieldKind.TEXT))
        )
    field.check(value)
    return True, value


def _parse_value(field: FormField, typed: str) -> Any:
    match field.kind:
        case FieldKind.TEXT:
            return "" if typed == _EMPTY_TEXT else typed
        case FieldKind.WHOLE:
            return int(typed) if _WHOLE_PATTERN.fullmatch(typed) else typed
        case FieldKind.NUMBER:
            return int(typed) if _WHOLE_PATTERN.fullmatch(typed) else _decimal(typed)
        case FieldKind.YES_NO:
            return typed.lower() in _YES if typed.lower() in (*_YES, *_NO) else typed
        case FieldKind.ONE:
            return _choice_value(field, typed)
        case FieldKind.SEVERAL:
            return list(dict.fromkeys(_choice_value(field, part.strip()) for part in typed.split(",") if part.strip()))
        case FieldKind.JSON:
            return _json(typed)


def _choice_value(field: FormField, typed: str) -> str:
    if typed.isascii() and typed.isdigit() and 1 <= int(typed[:9]) <= len(field.choices):
        return field.choices[int(typed[:9]) - 1].value
    matches = [choice.value for choice in field.choices if typed in (choice.value, choice.title)]
    if len(matches) != 1:
        raise FieldInvalid(f"{printable(typed)!r} is not a choice; type a number from 1 to {len(field.choices)}")
    return matches[0]


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


def is_single_value(fields: Sequence[FormField]) -> bool:
    """Return True if a form has a single required field whose label is only `value`. Such a label is not shown."""
    return len(fields) == 1 and fields[0].required and label_of(fields[0]).casefold() == "value"


def check_content(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Check a prepared answer's content, and add default values for missing fields.

    Raises:
        FieldInvalid: The content does not fit the form; the message names the field.
    """
    fields = {field.name: field for field in fields_of(schema)}
    if unknown := [name for name in content if name not in fields]:
        known = ", ".join(fields) or "none"
        raise FieldInvalid(f"the form has no field {unknown[0]!r}; its fields: {known}")
    filled = {name: field.default for name, field in fields.items() if field.has_default} | dict(content)
    for name, field in fields.items():
        if name in filled:
            try:
                field.check(filled[name])
            except FieldInvalid as invalid:
                raise FieldInvalid(f"field {name!r}: {invalid}") from invalid
        elif field.required:
            raise FieldInvalid(f"field {name!r} is required, but has no answer")
    return {name: filled[name] for name in fields if name in filled}
