"""A tool's arguments: from what the client sent to what the body and its resolvers receive.

The rules are the SDK's (`FuncMetadata.validate_arguments`); what can be prepared per tool is prepared once.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata

__all__ = ["ArgumentReader"]


class ArgumentReader:
    """Validates the arguments of one tool."""

    __slots__ = ("_fields", "_model", "_parsed", "names")

    def __init__(self, metadata: FuncMetadata) -> None:
        self._model = metadata.arg_model
        fields = self._model.model_fields
        self._fields = tuple((field, info.alias or field) for field, info in fields.items())
        # A client may send a list or an object as JSON text; text parameters are what they are.
        self._parsed = frozenset(
            name
            for field, info in fields.items()
            if info.annotation is not str
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
        """
        given = arguments
        for name, value in arguments.items():
            if type(value) is str and name in self._parsed:
                parsed = _parse(value)
                if parsed is not value:
                    given = {**given, name: parsed}
        model = self._model.model_validate(given)
        return {output: getattr(model, field) for field, output in self._fields}


def _parse(text: str) -> object:
    """The list or object that a text spells in JSON; the text itself for anything else."""
    try:
        parsed = cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
    return text if isinstance(parsed, str | int | float) else parsed
