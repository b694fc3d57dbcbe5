"""Forms: render schemas as the protocol requires, parse answers into values, and explain invalid answers.

The protocol's forms are flat objects with strings, numbers, booleans and enums, without nesting, `$ref` or null (F1-F4
in specs/protocol.md). Pydantic's schemas allow much more. This module flattens them, and rejects fields that cannot be
flattened. A form cannot express some rules, such as a pattern or an exclusive bound. The form leaves out these rules,
but the answer must still satisfy them.
"""

import json
import math
from collections.abc import Hashable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast

from pydantic import AfterValidator, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from roundtrip.errors import SchemaNotRenderable
from roundtrip.machine.pins import digest
from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.questions import fields

load_on_use(globals(), "roundtrip.questions.fields")

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_REASONS_SHOWN: Final = 3
_REASON_CHARS: Final = 300
_REFS: Final = "#/$defs/"


class AnswerInvalid(Exception):
    """An answer does not fit its question. The user sees the message."""


class Form(NamedTuple):
    """A rendered schema, with its digest and its answer validator."""

    schema: Mapping[str, Any]
    digest: bytes
    adapter: TypeAdapter[Any]
    single: bool = False
    """True if the form has only the field `value`, and that field's value is the answer."""
    choices: bool = False
    """True if the form was made from a mapping of choices; the values are then sent as text."""

    def parse(self, content: Mapping[str, Any] | None) -> Any:
        """Return an accepted answer's value.

        Raises:
            AnswerInvalid: The answer does not fit. The message has a short reason for each invalid field.
        """
        if content is None and self.schema["properties"]:
            raise AnswerInvalid("it was accepted with no content")
        try:
            answer = self.adapter.validate_python({} if content is None else content)
        except ValidationError as error:
            raise AnswerInvalid(explain(error)) from error
        return answer.value if self.single else answer

    def plain(self, value: Any) -> Any:
        """Return the form content for a value; the reverse of `parse`.

        Raises:
            ValueError: The value cannot be converted to JSON, or does not belong to this form.
        """
        if not self.single:
            return self.adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        if self.choices:
            several = isinstance(value, list)
            value = [str(choice) for choice in cast("list[object]", value)] if several else str(value)
        return {"value": to_jsonable_python(value)}

    def filled_in(self, content: Any) -> Mapping[str, Any]:
        """Return the schema, with the valid fields of an earlier answer as defaults."""
        given = self.valid_fields(content)
        properties = {
            field: {**shape, "default": given[field]} if field in given else shape
            for field, shape in cast("Mapping[str, dict[str, Any]]", self.schema["properties"]).items()
        }
        return {**self.schema, "properties": properties}

    def valid_fields(self, content: Any) -> Mapping[str, Any]:
        """Return the fields in an answer that are valid by themselves, in JSON form."""
        if not isinstance(content, Mapping):
            return {}
        given = cast("Mapping[str, Any]", content)
        try:
            plain = self.plain(self.parse(given))
            json.dumps(plain, allow_nan=False)
        except AnswerInvalid as error:
            wrong = _wrong_fields(error.__cause__)
            return {field: value for field, value in _shaped_values(self.schema, given).items() if field not in wrong}
        except Exception:  # noqa: BLE001 - an author's validator may raise anything
            return {}
        if not isinstance(plain, Mapping):
            return {}
        return {field: value for field, value in cast("Mapping[str, Any]", plain).items() if value is not None}


class _FormSchema(GenerateJsonSchema):
    """Schema generator for forms. An optional field may be left out but cannot be null, because forms have no null
    (F4).
    """

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        rendered = super().default_schema(schema)
        if rendered.get("default") is None:
            rendered.pop("default", None)
        return rendered


@lru_cache(maxsize=256)
def adapter_for(kind: Any) -> TypeAdapter[Any]:
    """Return a type's adapter, for values other than form answers."""
    return TypeAdapter(kind)


def form_of(schema: Any) -> Form:
    """Return a schema's form, rendered on first use.

    A schema with named fields (a model, a dataclass, a TypedDict) becomes a form with these fields. Any other type
    becomes a form with the single field `value`. A mapping from values to titles lets the user choose one value, and a
    list that contains such a mapping lets the user choose several.

    Raises:
        SchemaNotRenderable: The protocol's forms cannot show one of the fields.
    """
    if isinstance(schema, type):
        return _form_of_type(schema)
    several = isinstance(schema, list) and len(cast("list[object]", schema)) == 1
    titles = cast("object", schema[0] if several else schema)
    if isinstance(titles, Mapping):
        choices = tuple(
            _Choice(value, title, str(value), type(value)) for value, title in cast("Mapping[Any, str]", titles).items()
        )
        return _form_of_choices(choices, several=several)
    try:
        if not isinstance(schema, str):
            return _form_of_type(cast("Hashable", schema))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
    raise SchemaNotRenderable(
        "a schema must be a type such as int or Literal['a', 'b'], a mapping from values to titles for one choice, or "
        f"a list with one such mapping for several choices; got a {type(cast('object', schema)).__name__}",
        field=None,
    )


@lru_cache(maxsize=1024)
def _form_of_type(schema: Any) -> Form:
    name = getattr(schema, "__name__", None) or str(schema)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        rendered = adapter.json_schema(schema_generator=_FormSchema)
        definitions: dict[str, Any] = rendered.get("$defs", {})
        root = _resolve(rendered, definitions)
        single = root.get("type") != "object"
        if single:
            adapter = TypeAdapter(create_model("Answer", value=(schema, ...)))
            rendered = adapter.json_schema(schema_generator=_FormSchema)
            definitions = rendered.get("$defs", {})
            root = rendered
    except PydanticUserError as error:
        raise SchemaNotRenderable(f"form {name!r} has no JSON schema: {error.message}", field=None) from error
    if root.get("additionalProperties") and "properties" not in root:
        raise SchemaNotRenderable(
            f"form {name!r} has no named fields; use a model, a dataclass or a TypedDict with named fields", field=None
        )
    properties = {
        field: _FieldRenderer(name, field, _flatten(shape, definitions)).render()
        for field, shape in root.get("properties", {}).items()
    }
    form: dict[str, Any] = {"type": "object", "properties": properties}
    required = root.get("required")
    if required:
        form["required"] = required
    if "title" in root and not single:
        form["title"] = root["title"]
    return Form(form, digest_of_form(form), adapter, single=single)


class _Choice(NamedTuple):
    """One choice, for use in a cache key. The text and the type distinguish values that compare equal, such as 0, False
    and 0.0.
    """

    value: Any
    title: str
    text: str
    kind: type


@lru_cache(maxsize=1024)
def _form_of_choices(choices: tuple[_Choice, ...], *, several: bool) -> Form:
    texts = {choice.text: choice.value for choice in choices}
    if not choices or len(texts) != len(choices):
        raise SchemaNotRenderable("a choice must have values, and the values must differ as text", field=None)
    options = [{"const": choice.text, "title": choice.title} for choice in choices]
    one = AfterValidator(texts.__getitem__)
    chosen: Any = Annotated[Literal[tuple(texts)], one]
    shape: dict[str, Any] = {"title": "Value", "type": "string", "oneOf": options}
    if several:
        chosen = list[chosen]
        shape = {"title": "Value", "type": "array", "items": {"anyOf": options}}
    form = {"type": "object", "properties": {"value": shape}, "required": ["value"]}
    adapter: TypeAdapter[Any] = TypeAdapter(create_model("Answer", value=(chosen, ...)))
    return Form(form, digest_of_form(form), adapter, single=True, choices=True)


def digest_of_form(form: Mapping[str, Any]) -> bytes:
    """Return the digest of a form's schema."""
    return digest(json.dumps(form, sort_keys=True, separators=(",", ":")))


def _resolve(shape: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a shape's `$ref` (to an enum or a nested model) with its definition. Keys beside the `$ref` take
    precedence.
    """
    reference = shape.get("$ref")
    if not isinstance(reference, str):
        return shape
    target = definitions[reference.removeprefix(_REFS)]
    return {**target, **{key: value for key, value in shape.items() if key != "$ref"}}


def _flatten(shape: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    flat = _resolve(shape, definitions)
    items = flat.get("items")
    return {**flat, "items": _resolve(cast("dict[str, Any]", items), definitions)} if isinstance(items, dict) else flat


class _FieldRenderer(NamedTuple):
    """Renderer for one form field."""

    form: str
    field: str
    shape: dict[str, Any]

    def render(self) -> dict[str, Any]:
        """Return the field in the form that the protocol allows."""
        rendered = self._value() | self._copied("title", "description", "default")
        if "default" in rendered:
            try:
                rendered["default"] = to_jsonable_python(rendered["default"])
            except PydanticSerializationError as error:
                raise self._rejected(": its default has no JSON form") from error
        return rendered

    def _value(self) -> dict[str, Any]:
        shape = self.shape
        if _is_titled(shape.get("oneOf")):
            return {"type": "string", "oneOf": shape["oneOf"]}
        if (choices := _choices(shape)) is not None:
            # Clients before 2025-11-25 read titles only from `enumNames`, which authors can set with WithJsonSchema.
            return {"type": "string", "enum": self._texts(choices), **self._copied("enumNames")}
        match shape.get("type"):
            case "boolean":
                return {"type": "boolean"}
            case "integer" | "number" as kind:
                return {"type": kind, **_bounds(shape, whole=kind == "integer")}
            case "string":
                return self._text()
            case "array":
                return {"type": "array", "items": self._items(), **self._copied("minItems", "maxItems")}
            case _:
                raise self._unrenderable()

    def _text(self) -> dict[str, Any]:
        format = self.shape.get("format")
        if format == "password" or self.shape.get("writeOnly"):
            raise self._rejected(
                " is a secret, but forms pass through the client and its model; ask for it on a page, with ElicitUrl"
            )
        if format in ("binary", "base64url"):
            raise self._rejected(" holds bytes, which users cannot type; ask for text, or use a page")
        formatted = {"format": format} if format in _FORMATS else {}
        return {"type": "string", **self._copied("minLength", "maxLength"), **formatted}

    def _items(self) -> dict[str, Any]:
        items: dict[str, Any] = self.shape.get("items", {})
        if _is_titled(items.get("anyOf")):
            return {"anyOf": items["anyOf"]}
        if (choices := _choices(items)) is None:
            raise self._unrenderable()
        return {"type": "string", "enum": self._texts(choices)}

    def _texts(self, choices: list[Any]) -> list[str]:
        for choice in choices:
            if not isinstance(choice, str):
                raise self._rejected(
                    f" must have strings as choices, got {choice!r}; use string values and convert them in the tool"
                )
        return choices

    def _copied(self, *names: str) -> dict[str, Any]:
        return {name: self.shape[name] for name in names if name in self.shape}

    def _unrenderable(self) -> SchemaNotRenderable:
        shape = self.shape
        kind = shape.get("type") or next((word for word in ("anyOf", "oneOf", "allOf") if word in shape), "anything")
        return self._rejected(
            f" would be shown as {kind!r}, which the protocol's forms do not support: they are flat, with strings, "
            "numbers, booleans, choices of strings and lists of such choices. Ask for it in several fields, or in a "
            "separate question"
        )

    def _rejected(self, reason: str) -> SchemaNotRenderable:
        return SchemaNotRenderable(f"form {self.form!r}, field {self.field!r}{reason}", field=self.field)


def _choices(shape: Mapping[str, Any]) -> list[Any] | None:
    if "enum" in shape:
        return shape["enum"]
    return [shape["const"]] if "const" in shape else None


def _is_titled(options: Any) -> bool:
    """Return True for a list of options that each have a value and a title."""
    listed = cast("list[Any]", options) if isinstance(options, list) else []
    return listed != [] and all(isinstance(one, dict) and {"const", "title"} <= one.keys() for one in listed)


def _bounds(shape: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    bounds = {key: shape[key] for key in ("minimum", "maximum") if key in shape}
    # Forms have only inclusive bounds. Move an integer's exclusive bound by 1 to make it inclusive. Leave out a float's
    # exclusive bound, which validation checks later.
    if whole:
        if "exclusiveMinimum" in shape:
            bounds["minimum"] = max(shape["exclusiveMinimum"] + 1, bounds.get("minimum", -math.inf))
        if "exclusiveMaximum" in shape:
            bounds["maximum"] = min(shape["exclusiveMaximum"] - 1, bounds.get("maximum", math.inf))
    return bounds


def _wrong_fields(error: BaseException | None) -> set[object]:
    """Return the fields that failed validation. If a rule about several fields fails, the error names no field."""
    if not isinstance(error, ValidationError):
        return set()
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return {problem["loc"][0] for problem in problems if problem["loc"]}


def _shaped_values(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose type fits their field. Other values must not be shown again in a form."""
    shaped: dict[str, Any] = {}
    for field in fields.fields_of(schema):
        with suppress(fields.FieldInvalid):
            if field.name in content:
                field.check(content[field.name], has_format=False)
                shaped[field.name] = content[field.name]
    return shaped


def explain(error: ValidationError) -> str:
    """Describe each invalid field and the reason. The values are left out: they may be long, and the user knows
    them.
    """
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[:_REASONS_SHOWN]:
        where = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    return "; ".join(lines)[:_REASON_CHARS]
