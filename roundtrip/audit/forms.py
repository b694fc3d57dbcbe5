"""Form checks: the protocol's clauses about forms, and a search for fields that ask for secrets."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError

from roundtrip.audit.findings import ToolNotes
from roundtrip.untrusted import is_texts, list_of, mapping_of

_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_NESTED: Final = frozenset({"$ref", "$defs", "definitions", "allOf", "not", "if", "properties", "patternProperties"})
_CHOICES: Final = frozenset({"enum", "oneOf", "anyOf", "const"})
_SECRET: Final = re.compile(
    r"(?:^|[\W_])(?:pass(?:word|phrase|wd|code)|secret|api[\W_]?key|access[\W_]?token|private[\W_]?key|"
    r"(?:credit|debit)?[\W_]?card[\W_]?number|cvv|cvc|pin)(?:$|[\W_])",
    re.IGNORECASE,
)


def check_form(notes: ToolNotes, key: str, request: Mapping[str, Any]) -> None:
    """For each clause about forms, record whether a question's form complies."""
    schema = mapping_of(mapping_of(request.get("params")).get("requestedSchema"))
    is_flat = schema.get("type") == "object" and isinstance(schema.get("properties"), Mapping)
    notes.require(is_flat, "F1", f"the form of {key!r} is not an object with properties")
    for name, shape in mapping_of(schema.get("properties")).items():
        _check_field(notes, f"the field {name!r} of {key!r}", name, mapping_of(shape))


def _check_field(notes: ToolNotes, field: str, name: str, shape: Mapping[str, Any]) -> None:
    kind = shape.get("type")
    items = mapping_of(shape.get("items"))
    notes.require(_is_primitive(shape, items), "F1", f"{field} has the type {kind!r}")
    nested = sorted(_NESTED & (shape.keys() | items.keys()))
    null = kind == "null" or (isinstance(kind, list) and "null" in kind) or _allows_null(shape)
    problem = "allows null" if null else f"uses {', '.join(nested)}"
    notes.require(not nested and not null, "F4", f"{field} {problem}")
    if _CHOICES & shape.keys() or kind == "array":
        notes.require(_is_enum(shape, items), "F2", f"the protocol does not allow the choices of {field}")
    if shape.get("default") is not None:
        notes.require(_fits(shape, shape["default"]), "F3", f"the default of {field} does not fit its own schema")
    title = shape.get("title")
    named = next((text for text in (name, title) if isinstance(text, str) and _SECRET.search(_spaced(text))), None)
    is_text = kind == "string" and "enum" not in shape and "oneOf" not in shape
    notes.require(not (is_text and named), "S11", f"{field} seems to ask for a secret: {named!r}")


def _is_primitive(shape: Mapping[str, Any], items: Mapping[str, Any]) -> bool:
    kind = shape.get("type")
    if kind == "array":
        return bool(_CHOICES & items.keys())
    form = shape.get("format")
    return isinstance(kind, str) and kind in _PRIMITIVES and (form is None or kind != "string" or form in _FORMATS)


def _is_enum(shape: Mapping[str, Any], items: Mapping[str, Any]) -> bool:
    if shape.get("type") == "array":
        return is_texts(items.get("enum")) or _are_titled(items.get("anyOf"))
    if shape.get("type") != "string":
        return False
    return is_texts(shape.get("enum")) or _are_titled(shape.get("oneOf"))


def _are_titled(options: Any) -> bool:
    shapes = [mapping_of(option) for option in list_of(options)]
    return isinstance(options, list) and all(
        isinstance(one.get("const"), str) and isinstance(one.get("title"), str) for one in shapes
    )


def _allows_null(shape: Mapping[str, Any]) -> bool:
    options: Sequence[Any] = [*list_of(shape.get("anyOf")), *list_of(shape.get("oneOf"))]
    return any(mapping_of(option).get("type") == "null" for option in options) or None in list_of(shape.get("enum"))


def _fits(shape: Mapping[str, Any], value: Any) -> bool:
    try:
        Draft202012Validator.check_schema(dict(shape))
    except SchemaError:
        return False
    return bool(Draft202012Validator(dict(shape)).is_valid(value))  # pyright: ignore[reportUnknownMemberType]


def _spaced(text: str) -> str:
    """Separate the words in a camel-case name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
