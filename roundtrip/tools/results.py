"""Tool results: convert a return value to content for users and structured content for programs."""

from __future__ import annotations

import collections
import collections.abc
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, cast, get_args, get_origin

import pydantic_core
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, StrictJsonSchema
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from pydantic import (
    BaseModel,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from roundtrip.errors import InvalidSignature, NotSendable
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import arms_of
from roundtrip.sdk import output_adapter
from roundtrip.tools import content

if TYPE_CHECKING:
    from roundtrip.questions import forms
    from roundtrip.tools.schemas import checks
    from roundtrip.tools.schemas.checks import Check

load_on_use(globals(), "roundtrip.questions.forms", "roundtrip.tools.schemas.checks")

Converter = Callable[[Any], CallToolResult | InputRequiredResult]

WRAPPED = "x-fastmcp-wrap-result"
"""Key that marks an output schema whose only property, `result`, holds the returned value."""

_SCALARS = (str, int, bool)
_SERIALIZER_KEYS = frozenset(("serialization", "ser_json_inf_nan"))
_BYTES_OF_BLOCKS = {"data": True, "resource": {"blob": True}}
_NO_SCHEMA = (PydanticUserError, pydantic_core.SchemaError, ValidationError, TypeError, ValueError, NameError)


NOTHING = inspect.Signature.empty
"""Marker for an annotation from which no output schema is generated."""

_TYPES_WITHOUT_SCHEMA = (NOTHING, None, types.NoneType, Any, object)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.MutableSequence)
_ITERATIONS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


class Results(NamedTuple):
    """A tool's output schema, and the converter for its return values."""

    output_schema: dict[str, Any] | None
    convert: Converter


def results_for(
    metadata: FuncMetadata,
    returns: Any,
    *,
    tool: str,
    output_schema: dict[str, Any] | None = None,
    structured: bool | None = None,
) -> Results:
    """Return a tool's output schema and result converter.

    Args:
        metadata: The SDK's metadata for the function, read with `returned_type(returns)` as its return annotation.
        returns: The function's return annotation.
        tool: The tool's name, for messages.
        output_schema: Output schema from the author. It replaces the return annotation's schema.
        structured: False to send no structured content and list no schema; True to require a schema.

    Raises:
        InvalidSignature: The author's output schema is invalid, or a required schema cannot be generated.
    """
    if output_schema is not None:
        if structured is False:
            raise InvalidSignature(
                f"tool {tool!r}: output_schema= must not be combined with structured_output=False; leave one out"
            )
        return _results_for_schema(output_schema, tool=tool)
    if structured is False:
        return Results(None, _converter(lambda value: None))
    read = returned_type(returns)
    if (metadata.output_schema or {}).get("type") != "object":
        metadata = _add_output_model(metadata, read, tool=tool)
    if metadata.output_schema is None:
        if structured:
            raise InvalidSignature(
                f"tool {tool!r}: the return annotation is not serializable for structured output, which "
                "structured_output=True needs; annotate a model, a TypedDict or a dict, or pass output_schema="
            )
        return Results(None, _converter(_object_like))
    if metadata.output_model is None:
        # For hand-written metadata, the SDK publishes the schema and does not validate results.
        return Results(metadata.output_schema, _converter(lambda value: None))
    if unannotated(read) == dict[str, Any] and not metadata.wrap_output:
        schema = {"type": "object", "additionalProperties": True}
        return Results(schema, _converter(_require_object, check=_lazy_check(schema)))
    schema = _published_schema(metadata)
    if unannotated(read) in (list[Any], tuple[Any, ...]):
        return Results(schema, _converter(_require_list, check=_lazy_check(schema)))
    check = _lazy_check(schema)
    convert = _converter(_typed_structure(metadata, check), check=check)
    # Compare by identity: the fast converter does not check constraints such as `Annotated[int, Ge(0)]`.
    if metadata.wrap_output and any(read is scalar for scalar in _SCALARS):
        return Results(schema, _scalar_converter(read, convert))
    return Results(schema, convert)


def _results_for_schema(schema: dict[str, Any], *, tool: str) -> Results:
    if schema.get("type") != "object":
        raise InvalidSignature(
            f"tool {tool!r}: an output schema must describe an object, with 'type': 'object' at its root; "
            "make other values a property of that object"
        )
    try:
        check = checks.checker(schema)
    except ValueError as error:
        raise InvalidSignature(f"tool {tool!r}: output_schema is {error}") from error
    structure = _wrap_value if schema.get(WRAPPED) is True else _object_like

    def checked(value: Any) -> Any:
        structured = structure(value)
        check(structured)
        return structured

    return Results(schema, _converter(checked, check=check))


def _add_output_model(metadata: FuncMetadata, read: Any, *, tool: str) -> FuncMetadata:
    """Add the output schemas that the SDK does not generate: for enums, dates and root models."""
    returned = unannotated(read)
    if read is NOTHING or not isinstance(returned, type) or issubclass(returned, CallToolResult | InputRequiredResult):
        return FuncMetadata(arg_model=metadata.arg_model)
    try:
        direct = FuncMetadata(arg_model=metadata.arg_model, output_model=read)
        if (direct.output_schema or {}).get("type") == "object":
            return direct
        wrapper = create_model(f"{tool}Output", result=read)
        return FuncMetadata(arg_model=metadata.arg_model, output_model=wrapper, wrap_output=True)
    except _NO_SCHEMA:
        return FuncMetadata(arg_model=metadata.arg_model)


def _published_schema(metadata: FuncMetadata) -> dict[str, Any]:
    """Return the schema for values as they are sent. Computed fields and serializers can change a value before it is
    sent.
    """
    schema = metadata.output_schema or {}
    try:
        sent = output_adapter(metadata).json_schema(mode="serialization", schema_generator=StrictJsonSchema)
        sent = _with_root(sent)
    except _NO_SCHEMA:
        sent = schema
    if sent.get("type") == "object":
        schema = sent
    return {**schema, WRAPPED: True} if metadata.wrap_output else schema


def _with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Resolve the reference at the root of a recursive model's schema."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definition = schema.get("$defs", {}).get(name)
    if definition is None:
        return schema
    return {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}


def _converter(structure: Callable[[Any], Any], *, check: Check | None = None) -> Converter:
    """Return a converter that turns a value into content and adds the structured content that `structure` returns.

    Args:
        structure: Function that returns the structured content, or None for no structured content. It raises
            `SchemaMismatch` or `ValidationError` for a value that the output schema does not permit.
        check: Validates the structured content of a result object that the tool's function returned.
    """

    def convert(value: Any) -> CallToolResult | InputRequiredResult:
        if isinstance(value, InputRequiredResult):
            content.require_sendable_model(value)
            return value
        try:
            if isinstance(value, CallToolResult | content.ToolResult):
                return _convert_result_object(value, check)
            if isinstance(value, Iterator):
                # Keep an iterator's items, because they are read twice. As in the SDK, a deque becomes a single text
                # block.
                value = collections.deque(cast("Iterator[Any]", value))
            blocks = content.as_blocks(value)
            structured = structure(value)
        except (checks.SchemaMismatch, ValidationError) as error:
            # Leave the values out: a result can contain a user's answers, and both the message and the traceback are
            # logged.
            problem = error.summary if isinstance(error, checks.SchemaMismatch) else forms.explain(error)
            raise NotSendable(
                f"a result does not match the tool's output schema: {problem}; correct the result or the schema"
            ) from None
        if structured is None:
            return CallToolResult(content=blocks)
        return CallToolResult(content=blocks, structured_content=structured)

    return convert


def _convert_result_object(value: CallToolResult | content.ToolResult, check: Check | None) -> CallToolResult:
    result = value.to_call_tool_result() if isinstance(value, content.ToolResult) else value
    content.require_sendable_model(result)
    # Check the structured content and the metadata separately: inside a model, pydantic writes NaN and infinity as
    # null.
    structured, _ = content.as_json(result.structured_content), content.as_json(result.meta)
    if check is not None and not result.is_error:
        check(structured)
    return result


def _lazy_check(schema: dict[str, Any]) -> Check:
    """Return a check that compiles the schema on first use, because most tools never need the check."""
    prepared = functools.cache(lambda: checks.checker(schema))
    return lambda value: prepared()(value)


def _object_like(value: Any) -> Any:
    """Return the value as a JSON object; None for a value that is not an object."""
    if not (isinstance(value, Mapping | BaseModel) or is_dataclass(value)) or content.as_block(value) is not None:
        return None
    structured = content.as_json(value)
    return cast("Any", structured) if isinstance(structured, dict) else None


def _require_object(value: Any) -> Any:
    structured = _object_like(value)
    if structured is None:
        raise checks.SchemaMismatch(
            "", f"{type(value).__name__} is not an object; return a dict, a model or a dataclass"
        )
    return structured


def _wrap_value(value: Any) -> Any:
    return {"result": content.as_json(value)}


def _require_list(value: Any) -> Any:
    listed = content.as_json(_with_blocks(value))
    if not isinstance(listed, list):
        raise checks.SchemaMismatch("", f"{type(value).__name__} is not a list")
    return cast("Any", {"result": listed})


def _with_blocks(value: Any) -> Any:
    """Replace each image, sound and file in a list with its block, without the bytes. The result's content holds the
    bytes.
    """
    if isinstance(value, list | tuple):
        return [_with_blocks(item) for item in cast("Iterable[Any]", value)]
    block = content.as_block(value)
    if block is None:
        return value
    return block.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_BYTES_OF_BLOCKS)


def _typed_structure(metadata: FuncMetadata, check: Check) -> Callable[[Any], Any]:
    """Return a function that validates and serializes a value by its annotation, in the same way as the SDK."""
    adapter = output_adapter(metadata)
    wraps = metadata.wrap_output
    model = unannotated(metadata.output_model)
    may_violate_schema = _has_serializers(adapter.core_schema)

    def structure(value: Any) -> Any:
        given = {"result": value} if wraps else value
        validated = adapter.validate_python(given, by_alias=True, by_name=True)
        try:
            if isinstance(validated, BaseModel):
                # Dump with the instance's own class, so that a subclass keeps its additional fields.
                data = validated.model_dump(mode="json", by_alias=True)
            else:
                data = adapter.dump_python(validated, mode="json", by_alias=True)
        except ValueError as error:
            raise content.unsendable(error) from error
        content.require_sendable(data)
        if may_violate_schema or (type(validated) is not model and isinstance(validated, BaseModel)):
            check(data)
        return data

    return structure


def _has_serializers(core_schema: Any) -> bool:
    """Return True if a type has serializers, whose values might violate the published schema."""
    if isinstance(core_schema, list | tuple):
        return any(map(_has_serializers, cast("Iterable[Any]", core_schema)))
    if not isinstance(core_schema, dict):
        return False
    parts = cast("dict[str, Any]", core_schema)
    if not _SERIALIZER_KEYS.isdisjoint(parts):
        return True
    return any(_has_serializers(part) for key, part in parts.items() if key != "metadata")


def _scalar_converter(kind: type[Any], fallback: Converter) -> Converter:
    """Return a fast converter for str, int or bool. Its results equal those of the SDK's one-field model."""
    require = content.require_sendable_text if kind is str else content.require_sendable

    def convert(value: Any) -> CallToolResult | InputRequiredResult:
        if type(value) is not kind:
            return fallback(value)
        require(value)
        text = TextContent(type="text", text=value if kind is str else content.as_text(value))
        return CallToolResult(content=[text], structured_content={"result": value})

    return convert


def mark_wrapped(convert: Converter) -> Converter:
    """Return a converter that adds FastMCP's mark to each result: the mark says that the result wraps the returned
    value.

    Clients know the output schema of only one version of a tool, so each result must carry the mark.
    """

    def convert_and_mark(value: Any) -> CallToolResult | InputRequiredResult:
        result = convert(value)
        if not isinstance(result, CallToolResult) or result.structured_content is None:
            return result
        meta = result.meta or {}
        given = meta.get("fastmcp")
        kept = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        return result.model_copy(update={"meta": {**meta, "fastmcp": {"wrap_result": True, **kept}}})

    return convert_and_mark


# Return annotations.


def returned_type(annotation: Any) -> Any:
    """Return the type that the SDK's `func_metadata` should read for a return annotation; `NOTHING` if it gets no
    schema.

    `Any`, `object`, `None` and content types get no schema. A bare `dict`, `list`, `tuple` or `set` may hold anything.
    An iterator is read as a list, because its items are sent as a list.
    """
    if isinstance(annotation, str) or any(annotation is empty for empty in _TYPES_WITHOUT_SCHEMA):
        return NOTHING
    if get_origin(annotation) is Annotated:
        return _read_annotated(annotation)
    alias = _aliased(annotation)
    if alias is not None:
        return returned_type(alias)
    if _mentions_content(annotation):
        return NOTHING
    origin = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if origin in _AWAITED:
        return returned_type(arguments[-1]) if arguments else NOTHING
    if origin in _OBJECTS:
        return types.GenericAlias(dict, arguments) if arguments else dict[str, Any]
    if origin in _ITERATIONS:
        return list[arguments[0]] if arguments else list[Any]
    if origin in _LISTS and not arguments:
        return list[Any]
    read = _read_union(annotation) if origin in (Union, types.UnionType) else annotation
    return read if isinstance(read, type) or _is_known(read) else NOTHING


def _read_annotated(annotation: Any) -> Any:
    inner, *extras = get_args(annotation)
    if isinstance(inner, type) and issubclass(inner, CallToolResult):
        # The SDK reads the second argument of `Annotated` as the type of the structured content.
        return annotation
    read = returned_type(inner)
    return NOTHING if read is NOTHING else Annotated[(read, *extras)]


def _read_union(annotation: Any) -> Any:
    arms = [arm for arm in get_args(annotation) if not _is(arm, InputRequiredResult)]
    if any(arm is Any or arm is object for arm in arms):
        return NOTHING
    if len(arms) == 1:
        return returned_type(arms[0])
    return annotation


def _aliased(annotation: Any) -> Any:
    """Return the type that an alias stands for. Return None for other types, and for an alias whose names do not exist
    at runtime.
    """
    try:
        return getattr(annotation, "__value__", None) if get_origin(annotation) is None else None
    except NameError:
        return None


def _is_known(read: Any) -> bool:
    """Return True if pydantic can make a schema for the type. The SDK fails on a list of items that have no schema."""
    try:
        TypeAdapter[Any](read)
    except PydanticSchemaGenerationError:
        return False
    except (PydanticUserError, NameError):
        # Pydantic knows the type, but its definition has a mistake. The SDK reports the mistake.
        return True
    return True


def _mentions_content(annotation: Any) -> bool:
    """Return True for a content type, and for a list, tuple or union that contains a content type."""
    for arm in arms_of(annotation):
        origin = get_origin(arm)
        if origin in _LISTS or origin in _ITERATIONS or origin in _AWAITED:
            if any(_mentions_content(argument) for argument in get_args(arm)):
                return True
        elif any(_is(arm, kind) for kind in content.CONTENT_TYPES):
            return True
    return False


def _is(annotation: Any, kind: type) -> bool:
    return isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, kind)


def unannotated(read: Any) -> Any:
    """Return a type without its `Annotated` extras."""
    return get_args(read)[0] if get_origin(read) is Annotated else read
