"""The fields of a form that a server sent.

The schema is untrusted: the reader skips every part whose shape it does not know.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from roundtrip.client.fields import FORMATS, FieldChoice, FieldInvalid, FieldKind, FormField

__all__ = ["check_content", "fields_of", "is_single_value"]

_KINDS: Final = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.WHOLE,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.YES_NO,
}


def fields_of(schema: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a form, in the server's order."""
    required = schema.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    return [_field(name, shape, name in names) for name, shape in _mapping(schema.get("properties")).items()]


def is_single_value(fields: Sequence[FormField]) -> bool:
    """Return True if a form asks for one value, whose name adds nothing to the question."""
    return len(fields) == 1 and fields[0].required and fields[0].label.casefold() == "value"


def check_content(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Check the content of a prepared answer, and add the defaults of the fields that it leaves out.

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
            raise FieldInvalid(f"field {name!r} is required and not answered")
    return {name: filled[name] for name in fields if name in filled}


def _field(name: str, shape: Any, required: bool) -> FormField:
    parts = _mapping(shape)
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
        choices = _choices(_mapping(parts.get("items")))
        return (FieldKind.SEVERAL, choices) if choices else (FieldKind.JSON, ())
    if choices := _choices(parts):
        return FieldKind.ONE, choices
    return _KINDS.get(kind, FieldKind.JSON) if isinstance(kind, str) else FieldKind.JSON, ()


def _choices(parts: Mapping[str, Any]) -> tuple[FieldChoice, ...]:
    for word in ("oneOf", "anyOf"):
        options = [_mapping(option) for option in _list(parts.get(word))]
        if options and all(isinstance(option.get("const"), str) for option in options):
            return tuple(
                FieldChoice(option["const"], _text(option.get("title")) or option["const"]) for option in options
            )
    values = [value for value in _list(parts.get("enum")) if isinstance(value, str)]
    titles = [title for title in _list(parts.get("enumNames")) if isinstance(title, str)]
    return tuple(
        FieldChoice(value, title)
        for value, title in zip(values, titles if len(titles) == len(values) else values, strict=True)
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _bound(value: Any) -> float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
