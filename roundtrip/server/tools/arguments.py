"""A tool's arguments: from what the client sent to what the body and its resolvers receive.

The rules are the SDK's (`FuncMetadata.validate_arguments`), but that a model comes as an object and a text stays one;
what can be prepared per tool is prepared once.
"""

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from pydantic import BaseModel, Json, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from roundtrip.graph.signatures import arms_of

__all__ = ["ArgumentReader"]

_JSON_TEXT = cast("type[Any]", Json)
_TEXTS: tuple[type, ...] = (str, bytes, bytearray, pathlib.PurePath, SecretStr, SecretBytes, _JSON_TEXT)
_OTHER_SCALARS = (NoneType, int, float, complex, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)
_SCALARS = (*_TEXTS, *_OTHER_SCALARS, uuid.UUID, enum.Enum)


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
        self._fields = tuple((field, info.alias or field) for field, info in fields.items())
        # A client may send a list or an object as JSON text.
        self._parsed = frozenset(
            name
            for field, info in fields.items()
            if check is None and _may_come_as_json(info)
            for name in (field, info.alias)
            if name is not None
        )
        self.names: Mapping[str, str] = {
            **dict(self._fields),
            **{output: output for _, output in self._fields},
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
        parsed = cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
    return text if isinstance(parsed, str | int | float) else parsed


def _may_come_as_json(info: FieldInfo) -> bool:
    """Whether a text for this parameter may be a list or an object in disguise."""
    if any(extra is _JSON_TEXT or isinstance(extra, _JSON_TEXT) for extra in info.metadata):
        return False
    arms = [_plain(arm) for arm in arms_of(info.annotation)]
    if any(map(_is_model, arms)):
        return False
    return not (any(map(_takes_text, arms)) and all(map(_is_scalar, arms)))


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


def _is_scalar(arm: Any) -> bool:
    """Whether an arm is known to be neither a list nor an object."""
    return get_origin(arm) is Literal or (isinstance(arm, type) and issubclass(arm, _SCALARS))
