"""A field of a form in a few words: `copies: integer, 1 to 10, default 1, optional`."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from roundtrip.client.fields import FieldChoice, FieldKind, FormField
from roundtrip.client.forms import fields_of
from roundtrip.testing.snapshots.redaction import REDACTED

__all__ = ["Worded", "choices_apart", "worded"]

Worded = tuple[str, list[str], str | None]
"""What a field takes, its choices one by one, and its description."""

_LONGEST: Final = 88
"""Characters of choices that stand on one line."""
_TOLD: Final = frozenset({
    "type", "title", "description", "default", "enum", "enumNames", "oneOf", "anyOf", "items", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems",
})  # fmt: skip
_KINDS: Final = {
    FieldKind.TEXT: "text",
    FieldKind.WHOLE: "integer",
    FieldKind.NUMBER: "number",
    FieldKind.YES_NO: "yes or no",
    FieldKind.ONE: "one of",
    FieldKind.SEVERAL: "any of",
    FieldKind.JSON: "JSON",
}
_UNITS: Final = {FieldKind.TEXT: " characters", FieldKind.SEVERAL: " of them"}


def worded(name: str, shape: Any, *, required: bool) -> Worded:
    """A field of a form in words."""
    schema = {"properties": {name: shape}, "required": [name] if required else []}
    (field,) = fields_of(schema)
    parts: Mapping[str, Any] = cast("Mapping[str, Any]", shape) if isinstance(shape, Mapping) else {}
    choices = [_choice(choice) for choice in field.choices]
    takes = [*_kind(field, parts, choices), *_bounds(field), *_title(field)]
    if field.has_default:
        takes.append(f"default {_json(field.default)}")
    if not required:
        takes.append("optional")
    takes += [f"{word} {_json(value)}" for word, value in parts.items() if word not in _TOLD and word != "format"]
    return ", ".join(takes), choices if choices_apart(choices) else [], field.description


def choices_apart(choices: list[str]) -> bool:
    """Whether choices are too long for one line."""
    return len(" | ".join(choices)) > _LONGEST


def _kind(field: FormField, parts: Mapping[str, Any], choices: list[str]) -> list[str]:
    if REDACTED in (parts.get("enum"), parts.get("oneOf"), parts.get("anyOf"), parts.get("items")):
        return [f"one of {REDACTED}"]
    if field.kind in (FieldKind.ONE, FieldKind.SEVERAL):
        if choices_apart(choices):
            return [_KINDS[field.kind]]
        listed = " | ".join(choices)
        return [listed if field.kind is FieldKind.ONE else f"any of {listed}"]
    if field.kind is FieldKind.JSON and parts:
        kind = parts.get("type", parts.get("anyOf", "JSON"))
        return [kind if isinstance(kind, str) else _json(kind)]
    given = parts.get("format")
    return [given if isinstance(given, str) else _KINDS[field.kind]]


def _bounds(field: FormField) -> list[str]:
    unit = _UNITS.get(field.kind, "")
    match (field.least, field.most):
        case (None, None):
            return []
        case (least, None):
            return [f"at least {_json(least)}{unit}"]
        case (None, most):
            return [f"at most {_json(most)}{unit}"]
        case (least, most):
            return [f"{_json(least)} to {_json(most)}{unit}"]


def _title(field: FormField) -> list[str]:
    # Pydantic makes one of the name, which says nothing more.
    made = field.name.replace("_", " ").title()
    return [] if field.title is None or field.title in (field.name, made) else [f"titled {_json(field.title)}"]


def _choice(choice: FieldChoice) -> str:
    value = _json(choice.value)
    return value if choice.title == choice.value else f"{value} ({choice.title})"


def _json(value: Any) -> str:
    return REDACTED if value == REDACTED else json.dumps(value, ensure_ascii=False)
