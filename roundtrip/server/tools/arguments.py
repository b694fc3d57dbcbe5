"""A tool's arguments: from what the client sent to what the body and its resolvers receive.

The rules are the SDK's (`FuncMetadata.validate_arguments`), but that a model comes as an object and a text stays one;
what can be prepared per tool is prepared once.
"""

import dataclasses
import enum
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, cast, get_args, get_origin

import pydantic_core
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from pydantic import BaseModel, Json, SecretBytes, SecretStr, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import is_typeddict

from roundtrip.resolvers.signatures import arms_of

__all__ = ["ArgumentReader", "ArgumentsRejected", "mistakes_in", "rejected_fields"]

_SHOWN_MISTAKES = 2000
_CALLED_BY: Final = "pydantic._internal._validate_call"
"""Where pydantic checks the arguments of prompts and templates, before it calls the function."""

_JSON_TEXT = cast("type[Any]", Json)
_TEXTS: tuple[type, ...] = (str, bytes, bytearray, pathlib.PurePath, SecretStr, SecretBytes, _JSON_TEXT)


class ArgumentsRejected(ToolError):
    """The client's arguments do not fit the tool. `fields` has the names of those that do not, and no value."""

    def __init__(self, message: str, *, fields: Iterable[str]) -> None:
        super().__init__(message)
        # The SDK's handler logs the names in a cause of this type, and without one it logs the message.
        self.fields = rejected_fields(fields)


def rejected_fields(fields: Iterable[str]) -> ValidationError:
    """An error that says which arguments were rejected, and holds none of their values."""
    rejected: list[InitErrorDetails] = [
        {"type": PydanticCustomError("rejected", "rejected"), "loc": (field,), "input": None}
        for field in sorted(set(fields))
    ]
    return ValidationError.from_exception_data("arguments", rejected)


def fields_rejected_by(error: BaseException) -> list[str] | None:
    """The names of the arguments that the SDK rejected for a prompt or a template; None where something else failed."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValidationError):
        cause = cause.__cause__
    if cause is None:
        return None
    at = cause.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_globals.get("__name__") != _CALLED_BY:
        # Raised deeper, in the function itself: its author's crash.
        return None
    told = cause.errors(include_input=False, include_context=False, include_url=False)
    return sorted({str(each["loc"][0]) for each in told if each["loc"]})


def mistakes_in(error: ValidationError) -> str:
    """What pydantic has to say of arguments, cut short where it is of very many."""
    text = str(error)
    return text if len(text) <= _SHOWN_MISTAKES else f"{text[:_SHOWN_MISTAKES]}..."


class ArgumentReader:
    """Validates the arguments of one tool.

    Args:
        check: Has to accept the arguments as they were sent; nothing is then read as JSON text.
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
        """Every name by which a resolver may ask for an argument, with the name it is passed to the body under."""

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The validated arguments by the names of the body's parameters.

        Raises:
            ValidationError: They do not fit the tool's input schema.
            SchemaMismatch: As above, in the words of the check.
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
    """The list or object that a text spells in JSON; the text itself for anything else."""
    try:
        # As strict as the transports: what they refuse could not have been sent as a list or an object either.
        parsed = cast("object", pydantic_core.from_json(text, allow_inf_nan=False))
    except (ValueError, TypeError):  # the latter where a lone surrogate is in it
        return text
    return text if isinstance(parsed, str | int | float) else parsed


def _parameter_of(field: str, info: FieldInfo) -> str:
    """The body's own name of an argument: the SDK renames the fields that a model could not have."""
    renamed = info.alias is not None and field == f"field_{info.alias}" and hasattr(BaseModel, info.alias)
    return cast("str", info.alias) if renamed else field


def _may_come_as_json(info: FieldInfo) -> bool:
    """Whether a text for this parameter may only be a list or an object in disguise."""
    for extra in info.metadata:
        if extra is _JSON_TEXT or isinstance(extra, _JSON_TEXT):
            return False
        # What the SDK says of a parameter without an annotation.
        if isinstance(extra, WithJsonSchema) and (extra.json_schema or {}).get("type") == "string":
            return False
    arms = [_plain(arm) for arm in arms_of(info.annotation)]
    return not any(_is_model(arm) or _takes_text(arm) for arm in arms)


def _plain(arm: Any) -> Any:
    """The type behind a `NewType`."""
    while (supertype := getattr(arm, "__supertype__", None)) is not None:
        arm = supertype
    return arm


def _is_model(arm: Any) -> bool:
    kind: Any = get_origin(arm) or arm
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(cast("Any", kind)) or is_typeddict(cast("Any", kind))
    )


def _takes_text(arm: Any) -> bool:
    """Whether any text may be meant by the client, one that looks like JSON included."""
    if get_origin(arm) is Literal:
        return any(isinstance(value, str) for value in get_args(arm))
    if not isinstance(arm, type):
        return False
    if issubclass(arm, enum.Enum):
        return any(isinstance(member.value, str) for member in arm)
    return issubclass(arm, _TEXTS)
