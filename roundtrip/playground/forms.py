"""Tool forms and question forms: their controls on the page, and the texts that the page sends back."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any, Final, cast

from roundtrip.client.fields import is_single_value
from roundtrip.client.tools import schema_at
from roundtrip.pages.controls import LEFT_OUT, FieldView, Posted, read_field, view_of_field
from roundtrip.questions.fields import fields_of
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.requests import FormInvalid
from roundtrip.untrusted import is_texts, list_of, mapping_of

_MAX_DEPTH: Final = 8
"""The depth to which nested references and alternatives in a schema are followed."""
_MAX_POSTED: Final = 1000


class ShownForm:
    """Form on the page.

    Args:
        id: The form's unique id on the page.
        schema: An object schema from a server.
    """

    def __init__(self, id: str, schema: Mapping[str, Any]) -> None:
        fields = fields_of(schema)
        is_only = is_single_value(fields)
        self._views = [view_of_field(_field_id(id, field.name), field, is_only=is_only) for field in fields]

    def data(self) -> list[Data]:
        """Return the fields as page data."""
        return [_field_data(view) for view in self._views]

    def read(self, posted: Posted) -> dict[str, Any]:
        """Convert the posted texts to form content.

        Raises:
            FormInvalid: A text does not fit its field.
        """
        content: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for view in self._views:
            filled, value = read_field(view, posted)
            if filled.error is not None:
                errors[view.id] = filled.error
            elif value is not LEFT_OUT:
                content[view.field.name] = value
        if errors:
            raise FormInvalid(errors)
        return content


def _field_id(form: str, field: str) -> str:
    """Return an id that a field keeps when its tool gets another field. Otherwise, texts that the user has typed would
    move to other fields.
    """
    return f"f{sha256(json.dumps([form, field]).encode()).hexdigest()[:16]}"


def _field_data(view: FieldView) -> Data:
    return {
        "id": view.id,
        "names": view.names,
        "control": view.control.value,
        "label": view.label,
        "name": view.field.name,
        "about": view.about,
        "hint": view.hint,
        "required": view.field.required,
        "typed": view.typed,
        "mode": view.input_mode,
        "options": [asdict(one) for one in view.options],
        "zones": [asdict(one) for one in view.zones],
    }


def parse_posted(value: object) -> Posted:
    """Check the form texts that the page sent. They must map each control name to a list of texts.

    Raises:
        ValueError: The value is not such a mapping.
    """
    if not isinstance(value, dict) or len(cast("dict[str, object]", value)) > _MAX_POSTED:
        raise ValueError(f"fields must be an object with at most {_MAX_POSTED} members")
    posted: dict[str, list[str]] = {}
    for name, texts in cast("dict[str, object]", value).items():
        if not is_texts(texts):
            raise ValueError("each field must be a list of strings")
        posted[name] = texts
    return posted


def argument_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's argument schema in the flat form that question schemas have.

    References are resolved, and alternatives with `null` become optional fields. For any other nested value, the form
    has a text field that accepts JSON.
    """
    properties = mapping_of(schema.get("properties"))
    flat = {name: _flatten(shape, schema, 0) for name, shape in properties.items()}
    required = [name for name in list_of(schema.get("required")) if isinstance(name, str)]
    return {"properties": flat, "required": required}


def _flatten(shape: object, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    parts = dict(mapping_of(shape))
    if depth > _MAX_DEPTH:
        return parts
    reference = parts.pop("$ref", None)
    if isinstance(reference, str):
        return _flatten({**schema_at(reference, root), **parts}, root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        options = [one for one in list_of(parts.get(word)) if mapping_of(one).get("type") != "null"]
        if len(options) == 1:
            rest = {name: value for name, value in parts.items() if name != word}
            return _flatten({**mapping_of(options[0]), **rest}, root, depth + 1)
    kinds = [kind for kind in list_of(parts.get("type")) if kind != "null"]
    if len(kinds) == 1:
        parts["type"] = kinds[0]
    if "const" in parts and isinstance(parts["const"], str):
        parts["enum"] = [parts["const"]]
    if parts.get("type") == "array":
        parts["items"] = _flatten(parts.get("items"), root, depth + 1)
    return parts
