"""Validate a tool's arguments for its body and its resolvers.

The rules are those of the SDK's `FuncMetadata.validate_arguments`, except that a model must be sent as an object and a
text stays a text. Each tool prepares its reader once.
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
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import is_typeddict

from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import arms_of

if TYPE_CHECKING:
    from roundtrip.tools import schema_checks
else:
    load_on_use(globals(), "roundtrip.tools.schema_checks")

_SHOWN_MISTAKES = 2000
_CALLED_BY: Final = "pydantic._internal._validate_call"
"""Module in which pydantic checks the arguments of prompts and templates before it calls the function."""

_JSON_TEXT = cast("type[Any]", Json)
_TEXTS: tuple[type, ...] = (str, bytes, bytearray, pathlib.PurePath, SecretStr, SecretBytes, _JSON_TEXT)


class ArgumentsRejected(ToolError):
    """Arguments of a client that do not fit the tool. `fields` has their names, and no value."""

    def __init__(self, message: str, *, places: Iterable[object], names: Container[object]) -> None:
        super().__init__(message)
        # The SDK's handler logs the names in a cause of this type; without one it would log the message.
        # Deeper places, and unknown names, are the client's own text.
        self.fields = rejected_fields(place for place in places if isinstance(place, str) and place in names)


def rejected_fields(fields: Iterable[str]) -> ValidationError:
    """Return an error that names the rejected arguments and holds none of their values."""
    rejected: list[InitErrorDetails] = [
        {"type": PydanticCustomError("rejected", "rejected"), "loc": (field,), "input": None}
        for field in sorted(set(fields))
    ]
    return ValidationError.from_exception_data("arguments", rejected)


def fields_rejected_by(error: BaseException) -> list[str] | None:
    """Return the names of the arguments that the SDK rejected for a prompt or template; None for other errors."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValidationError):
        cause = cause.__cause__
    if cause is None:
        return None
    at = cause.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_globals.get("__name__") != _CALLED_BY:
        # Raised deeper, by the function itself: a crash of its author's code.
        return None
    mistakes = cause.errors(include_input=False, include_context=False, include_url=False)
    return sorted({str(each["loc"][0]) for each in mistakes if each["loc"]})


def mistakes_in(error: ValidationError) -> str:
    """Return pydantic's text about the arguments, truncated if it is long."""
    text = str(error)
    return text if len(text) <= _SHOWN_MISTAKES else f"{text[:_SHOWN_MISTAKES]}..."


class ArgumentReader:
    """Validator of the arguments of one tool.

    Args:
        check: Check that must accept the arguments as sent; with it, no text is read as JSON.
    """

    __slots__ = ("_check", "_fields", "_model", "_parsed", "names")

    def __init__(self, metadata: FuncMetadata, check: Callable[[object], None] | None = None) -> None:
        self._check = check
        self._model = metadata.arg_model
        fields = self._model.model_fields
        self._fields = tuple((field, _parameter_of(field, info)) for field, info in fields.items())
        # A client may send a list or an object as JSON text.
        self._parsed = frozenset(
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
        """Every name by which a resolver may request an argument, with its name in the body."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's arguments as the body receives them.

        Raises:
            ArgumentsRejected: They do not fit the input schema.
        """
        try:
            return self.read(arguments)
        except ValidationError as error:
            # The client's mistake. A ValidationError from anywhere else in a leg is the author's, and a crash.
            mistakes = error.errors(include_input=False, include_context=False, include_url=False)
            places = [each["loc"][0] for each in mistakes if each["loc"]]
            raise ArgumentsRejected(mistakes_in(error), places=places, names=self.names) from None
        except schema_checks.SchemaMismatch as error:
            raise ArgumentsRejected(str(error), places=re.split(r"[.\[]", error.place)[:1], names=self.names) from None

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments by the names of the body's parameters.

        Raises:
            ValidationError: They do not fit the tool's input schema.
            SchemaMismatch: The check rejects them.
        """
        given = arguments
        if self._parsed:
            for name, value in arguments.items():
                if type(value) is str and name in self._parsed:
                    parsed = _parse(value)
                    if parsed is not value:
                        given = {**given, name: parsed}
        elif self._check is not None:
            self._check(arguments)
        model = self._model.model_validate(given)
        return {output: getattr(model, field) for field, output in self._fields}


def _parse(text: str) -> object:
    """Return the list or object that a JSON text represents; the text itself otherwise."""
    try:
        # As strict as the transports, which reject NaN and infinity in lists and objects too.
        parsed = cast("object", pydantic_core.from_json(text, allow_inf_nan=False))
    except (ValueError, TypeError):  # TypeError: the text has a lone surrogate
        return text
    return text if isinstance(parsed, str | int | float) else parsed


def _parameter_of(field: str, info: FieldInfo) -> str:
    """Return the body's own name of an argument: the SDK renames fields that a model cannot have."""
    renamed = info.alias is not None and field == f"field_{info.alias}" and hasattr(BaseModel, info.alias)
    return cast("str", info.alias) if renamed else field


def _may_come_as_json(info: FieldInfo) -> bool:
    """Return True if a text for this parameter can only be a list or object as JSON."""
    for extra in info.metadata:
        if extra is _JSON_TEXT or isinstance(extra, _JSON_TEXT):
            return False
        # The SDK's schema for a parameter without an annotation.
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
    """Return True if the client may mean any text, even one that looks like JSON."""
    if get_origin(arm) is Literal:
        return any(isinstance(value, str) for value in get_args(arm))
    if not isinstance(arm, type):
        return False
    if issubclass(arm, enum.Enum):
        return any(isinstance(member.value, str) for member in arm)
    return issubclass(arm, _TEXTS)
