"""A schema's form: rendered as the protocol allows it, once, and the way back from an answer to a value.

The protocol's forms are flat objects of strings, numbers, booleans and enums, without nesting, `$ref` or null
(F1-F4). Pydantic renders much more, so what it renders is brought into that shape here or refused by field name.
Constraints that a form cannot say (a pattern, an exclusive bound) are left out of it and still hold for the answer.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from roundtrip.errors import SchemaNotRenderable
from roundtrip.machine.journal import digest

__all__ = ["AnswerInvalid", "Form", "form_of"]

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_SHARED: Final = ("title", "description", "default")
_REASONS_SHOWN: Final = 3
_REASON_CHARS: Final = 300
_REFS: Final = "#/$defs/"


class AnswerInvalid(Exception):
    """An answer that does not fit its form; the message is fit to show to the person who gave it."""


@dataclass(frozen=True, slots=True)
class Form:
    """One rendered schema: what the client shows, its digest, and the validator of what comes back."""

    schema: Mapping[str, Any]
    digest: str
    adapter: TypeAdapter[Any]

    def parse(self, content: Mapping[str, Any] | None) -> Any:
        """The value of an accepted answer.

        Raises:
            AnswerInvalid: The answer does not fit, with a short reason per field.
        """
        if content is None and self.schema["properties"]:
            raise AnswerInvalid("it was accepted without content")
        try:
            return self.adapter.validate_python({} if content is None else content)
        except ValidationError as error:
            raise AnswerInvalid(_explain(error)) from error


class _FormSchema(GenerateJsonSchema):
    """Renders optional fields as fields that may be left out: forms know no null (F4)."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        rendered = super().default_schema(schema)
        if rendered.get("default") is None:
            rendered.pop("default", None)
        return rendered


@lru_cache(maxsize=1024)
def form_of(schema: type[Any]) -> Form:
    """The form of a schema, rendered on first use.

    Raises:
        SchemaNotRenderable: A field has no place in the protocol's forms.
    """
    name = getattr(schema, "__name__", str(schema))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        rendered = adapter.json_schema(schema_generator=_FormSchema)
    except PydanticUserError as error:
        raise SchemaNotRenderable(f"form {name!r} has no JSON schema: {error.message}", field=None) from error
    definitions: dict[str, Any] = rendered.get("$defs", {})
    root = _resolve(rendered, definitions)
    if root.get("type") != "object" or ("additionalProperties" in root and "properties" not in root):
        raise SchemaNotRenderable(
            f"a question's schema must have a named field for each thing to ask (a Pydantic model, a dataclass, a "
            f"TypedDict); {name!r} has none",
            field=None,
        )
    properties = {
        field: _render_field(name, field, _flatten(shape, definitions))
        for field, shape in root.get("properties", {}).items()
    }
    form: dict[str, Any] = {"type": "object", "properties": properties}
    required = root.get("required")
    if required:
        form["required"] = required
    if "title" in root:
        form["title"] = root["title"]
    canonical = json.dumps(form, sort_keys=True, separators=(",", ":"))
    return Form(form, digest(canonical), adapter)


def _resolve(shape: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with its `$ref` (an enum, a nested model) put in place; siblings of the reference win."""
    reference = shape.get("$ref")
    if not isinstance(reference, str):
        return shape
    target = definitions[reference.removeprefix(_REFS)]
    return {**target, **{key: value for key, value in shape.items() if key != "$ref"}}


def _flatten(shape: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    flat = _resolve(shape, definitions)
    items = flat.get("items")
    return {**flat, "items": _resolve(cast("dict[str, Any]", items), definitions)} if isinstance(items, dict) else flat


def _render_field(form: str, field: str, shape: dict[str, Any]) -> dict[str, Any]:
    rendered: dict[str, Any]
    kind = shape.get("type")
    choices = _choices(shape)
    if _is_titled(shape.get("oneOf")):
        rendered = {"type": "string", "oneOf": shape["oneOf"]}
    elif choices is not None:
        rendered = {"type": "string", "enum": _texts(form, field, choices)}
        # Titles as clients before 2025-11-25 know them; an author writes them with WithJsonSchema.
        if "enumNames" in shape:
            rendered["enumNames"] = shape["enumNames"]
    elif kind == "boolean":
        rendered = {"type": "boolean"}
    elif kind in ("integer", "number"):
        rendered = {"type": kind, **_bounds(shape, whole=kind == "integer")}
    elif kind == "string":
        rendered = {"type": "string", **{key: shape[key] for key in ("minLength", "maxLength") if key in shape}}
        if shape.get("format") in _FORMATS:
            rendered["format"] = shape["format"]
    elif kind == "array":
        rendered = {"type": "array", "items": _items(form, field, shape)}
        rendered |= {key: shape[key] for key in ("minItems", "maxItems") if key in shape}
    else:
        raise _unrenderable(form, field, shape)
    for key in _SHARED:
        if key in shape:
            rendered[key] = shape[key]
    if "default" in rendered:
        rendered["default"] = _json_default(form, field, rendered["default"])
    return rendered


def _choices(shape: Mapping[str, Any]) -> list[Any] | None:
    if "enum" in shape:
        return shape["enum"]
    return [shape["const"]] if "const" in shape else None


def _texts(form: str, field: str, choices: list[Any]) -> list[str]:
    for choice in choices:
        if not isinstance(choice, str):
            raise SchemaNotRenderable(
                f"form {form!r}, field {field!r}: the choices of a form are strings, and {choice!r} is not one; "
                "use string values and convert them in the tool",
                field=field,
            )
    return choices


def _items(form: str, field: str, shape: dict[str, Any]) -> dict[str, Any]:
    items: dict[str, Any] = shape.get("items", {})
    if _is_titled(items.get("anyOf")):
        return {"anyOf": items["anyOf"]}
    choices = _choices(items)
    if choices is None:
        raise _unrenderable(form, field, shape)
    return {"type": "string", "enum": _texts(form, field, choices)}


def _is_titled(options: Any) -> bool:
    """Whether a list of options has a value and a title for each."""
    return (
        isinstance(options, list)
        and options != []
        and all(
            isinstance(option, dict) and {"const", "title"} <= option.keys() for option in cast("list[Any]", options)
        )
    )


def _bounds(shape: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    bounds = {key: shape[key] for key in ("minimum", "maximum") if key in shape}
    # Forms have inclusive bounds only. Over integers an exclusive one is as good; over floats it is left to validation.
    if whole:
        if "exclusiveMinimum" in shape:
            bounds["minimum"] = max(shape["exclusiveMinimum"] + 1, bounds.get("minimum", -math.inf))
        if "exclusiveMaximum" in shape:
            bounds["maximum"] = min(shape["exclusiveMaximum"] - 1, bounds.get("maximum", math.inf))
    return bounds


def _json_default(form: str, field: str, default: Any) -> Any:
    try:
        return to_jsonable_python(default)
    except PydanticSerializationError as error:
        raise SchemaNotRenderable(
            f"form {form!r}, field {field!r}: its default has no JSON form", field=field
        ) from error


def _unrenderable(form: str, field: str, shape: Mapping[str, Any]) -> SchemaNotRenderable:
    what = shape.get("type") or next((word for word in ("anyOf", "oneOf", "allOf") if word in shape), "anything")
    return SchemaNotRenderable(
        f"form {form!r}, field {field!r} would be shown as {what!r}, which the protocol's forms do not have: they are "
        "flat, with strings, numbers, booleans, choices of strings and lists of such choices. "
        "Ask for it in several fields, or in a question of its own",
        field=field,
    )


def _explain(error: ValidationError) -> str:
    """Which fields are wrong and why, without the values: they may be long, and the reader has just typed them."""
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[:_REASONS_SHOWN]:
        where = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    return "; ".join(lines)[:_REASON_CHARS]
