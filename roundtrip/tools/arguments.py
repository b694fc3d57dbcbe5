"""Argument validation for a tool's body and resolvers.

The rules match the SDK's `FuncMetadata.validate_arguments`, with two exceptions. A model must be sent as an object, and
an argument that may be text is never parsed as JSON. The rules are prepared once per tool.
"""

import dataclasses
import enum
import pathlib
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args, get_origin

import pydantic_core
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from pydantic import BaseModel, Json, SecretBytes, SecretStr, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator, core_schema
from typing_extensions import is_typeddict

from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import arms_of
from roundtrip.text import shortened

if TYPE_CHECKING:
    from roundtrip.tools.schemas import checks

load_on_use(globals(), "roundtrip.tools.schemas.checks")

_MAX_MISTAKE_CHARS = 2000
_PYDANTIC_CALLER: Final = "pydantic._internal._validate_call"
"""Pydantic module that checks the arguments of a prompt or template before calling its function."""

_LAZY_ITERATOR = cast("type[Any]", type(SchemaValidator(core_schema.generator_schema()).validate_python(())))
"""Class of pydantic's values for `Iterable` and `Generator`, whose items are validated when code iterates over them."""

_JSON_TEXT = cast("type[Any]", Json)
_TEXTS: tuple[type, ...] = (str, bytes, bytearray, pathlib.PurePath, SecretStr, SecretBytes, _JSON_TEXT)


class ArgumentsRejected(ToolError):
    """Client arguments that do not match the tool's schema. `fields` contains the argument names but not the values."""

    def __init__(self, message: str, *, places: Iterable[object], names: Container[object]) -> None:
        super().__init__(message)
        # If the cause is a ValidationError, the SDK's handler logs only field names. For any other cause, the handler
        # would log the message. Keep only known names: unknown names and deeper paths are the client's own text.
        self.fields = rejected_fields(place for place in places if isinstance(place, str) and place in names)


def rejected_fields(fields: Iterable[str]) -> ValidationError:
    """Return an error that contains the rejected arguments' names, but not their values."""
    rejected: list[InitErrorDetails] = [
        {"type": PydanticCustomError("rejected", "rejected"), "loc": (field,), "input": None}
        for field in sorted(set(fields))
    ]
    return ValidationError.from_exception_data("arguments", rejected)


def fields_rejected_by(error: BaseException) -> list[str] | None:
    """Return the names of prompt or template arguments that the SDK rejected; None if the error has another cause."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValidationError):
        cause = cause.__cause__
    if cause is None:
        return None
    at = cause.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_globals.get("__name__") != _PYDANTIC_CALLER:
        # The function itself raised the error, so this is a crash in the author's code.
        return None
    mistakes = cause.errors(include_input=False, include_context=False, include_url=False)
    return sorted({str(each["loc"][0]) for each in mistakes if each["loc"]})


def mistakes_in(error: ValidationError) -> str:
    """Return pydantic's text about the rejected arguments, shortened if necessary."""
    return shortened(str(error), _MAX_MISTAKE_CHARS, ending="...")


class ArgumentReader:
    """Validator for one tool's arguments.

    Args:
        metadata: The SDK's metadata for the tool's function.
        check: Validates the arguments exactly as the client sent them. If set, strings are not parsed as JSON.
    """

    __slots__ = ("_check", "_fields", "_is_lazy", "_json_fields", "_model", "names")

    def __init__(self, metadata: FuncMetadata, check: Callable[[object], None] | None = None) -> None:
        self._check = check
        self._model = metadata.arg_model
        self._is_lazy = _has_iterator(self._model.__pydantic_core_schema__)
        fields = self._model.model_fields
        self._fields = tuple((field, _parameter_of(field, info)) for field, info in fields.items())
        # Clients may send a list or an object as JSON text.
        self._json_fields = frozenset(
            name
            for field, info in fields.items()
            if check is None and _may_come_as_json(info)
            for name in (field, info.alias, info.validation_alias)
            if isinstance(name, str)
        )
        aliases = {info.alias: field for field, info in fields.items() if info.alias is not None}
        outputs = dict(self._fields)
        self.names: Mapping[str, str] = {
            **outputs,
            **{alias: outputs[field] for alias, field in aliases.items()},
            **{output: output for output in outputs.values()},
        }
        """Maps the argument names that resolvers may use to the names of the body's parameters."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's arguments in the form that the body receives.

        Raises:
            ArgumentsRejected: The arguments do not match the input schema.
        """
        try:
            return self.read(arguments)
        except ValidationError as error:
            # Here a ValidationError is the client's mistake. Anywhere else in a leg, it is a crash in the author's
            # code.
            mistakes = error.errors(include_input=False, include_context=False, include_url=False)
            places = [each["loc"][0] for each in mistakes if each["loc"]]
            raise ArgumentsRejected(mistakes_in(error), places=places, names=self.names) from None
        except checks.SchemaMismatch as error:
            raise ArgumentsRejected(str(error), places=re.split(r"[.\[]", error.place)[:1], names=self.names) from None

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments, keyed by the names of the body's parameters.

        Raises:
            ValidationError: The arguments do not match the tool's input schema.
            SchemaMismatch: The tool's check rejects the arguments.
        """
        given = arguments
        if self._json_fields:
            for name, value in arguments.items():
                if type(value) is str and name in self._json_fields:
                    parsed = _parse(value)
                    if parsed is not value:
                        given = {**given, name: parsed}
        elif self._check is not None:
            self._check(arguments)
        model = self._model.model_validate(given)
        values = {output: getattr(model, field) for field, output in self._fields}
        return without_iterators(values) if self._is_lazy else values


def without_iterators(value: Any) -> Any:
    """Return a validated value with a list in place of each of pydantic's iterators, which can be read only once.

    Raises:
        ValidationError: An item does not match the input schema.
    """
    if isinstance(value, _LAZY_ITERATOR):
        return [without_iterators(item) for item in value]
    kind = cast("type[Any]", type(value))
    if kind is dict:
        return {key: without_iterators(item) for key, item in cast("dict[Any, Any]", value).items()}
    if kind in (list, tuple):
        return type(value)(map(without_iterators, value))
    if _is_model(kind):
        for name in kind.model_fields if issubclass(kind, BaseModel) else [f.name for f in dataclasses.fields(value)]:
            # The class may be frozen.
            object.__setattr__(value, name, without_iterators(getattr(value, name)))
    return value


def _has_iterator(schema: object) -> bool:
    """Return True if pydantic returns an iterator for a part of a core schema."""
    if isinstance(schema, dict):
        parts = cast("dict[str, Any]", schema)
        return parts.get("type") == "generator" or any(map(_has_iterator, parts.values()))
    return isinstance(schema, list | tuple) and any(map(_has_iterator, cast("list[Any]", schema)))


def _parse(text: str) -> object:
    """Parse a string that contains a JSON list or object; return other strings unchanged."""
    try:
        # The transports also reject NaN and infinity in lists and objects.
        parsed = cast("object", pydantic_core.from_json(text, allow_inf_nan=False))
    except (ValueError, TypeError):  # TypeError: the string has an unpaired surrogate
        return text
    return text if isinstance(parsed, str | int | float) else parsed


def _parameter_of(field: str, info: FieldInfo) -> str:
    """Return the name of the body's parameter for a field. The SDK renames fields that would clash with a pydantic
    model's attributes.
    """
    renamed = info.alias is not None and field == f"field_{info.alias}" and hasattr(BaseModel, info.alias)
    return cast("str", info.alias) if renamed else field


def _may_come_as_json(info: FieldInfo) -> bool:
    """Return True if a string sent for this parameter may be parsed as a JSON list or object."""
    for extra in info.metadata:
        if extra is _JSON_TEXT or isinstance(extra, _JSON_TEXT):
            return False
        # The SDK gives this schema to a parameter without an annotation.
        if isinstance(extra, WithJsonSchema) and (extra.json_schema or {}).get("type") == "string":
            return False
    arms = [_plain(arm) for arm in arms_of(info.annotation)]
    return not any(_is_model(arm) or _takes_text(arm) for arm in arms)


def _plain(arm: Any) -> Any:
    """Return the type behind a `NewType`."""
    while (supertype := getattr(arm, "__supertype__", None)) is not None:
        arm = supertype
    return arm


def _is_model(arm: Any) -> bool:
    kind: Any = get_origin(arm) or arm
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(cast("Any", kind)) or is_typeddict(cast("Any", kind))
    )


def _takes_text(arm: Any) -> bool:
    """Return True if the type accepts a string as is, without parsing it as JSON."""
    if get_origin(arm) is Literal:
        return any(isinstance(value, str) for value in get_args(arm))
    if not isinstance(arm, type):
        return False
    if issubclass(arm, enum.Enum):
        return any(isinstance(member.value, str) for member in arm)
    return issubclass(arm, _TEXTS)
