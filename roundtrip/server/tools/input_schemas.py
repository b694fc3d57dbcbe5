"""Check the input schemas that authors write, and arguments against a tool's schema."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from roundtrip.errors import InvalidSignature
from roundtrip.server.tools.schemas import input_checker

__all__ = ["check_of", "checked_schema"]


def check_of(schema: dict[str, Any], *, tool: str) -> Callable[[object], None]:
    """Return a check of the arguments of a tool against its schema.

    Raises:
        InvalidSignature: The schema is invalid.
    """
    try:
        return input_checker(schema)
    except ValueError as error:
        raise InvalidSignature(f"tool {tool!r}: its input schema cannot be checked: {error}") from error


def checked_schema(given: dict[str, Any], derived: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    """Return an author's schema of the arguments, which must let clients send what the parameters need.

    Raises:
        InvalidSignature: It is not a schema of an object, or rules out an argument that the function requires.
    """
    if not isinstance(given, dict) or given.get("type") != "object":  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSignature(
            f"tool {tool!r}: input_schema= must be a JSON schema of an object, with 'type': 'object' at its root"
        )
    properties: object = given.get("properties", {})
    if given.get("additionalProperties") is False and isinstance(properties, dict) and "patternProperties" not in given:
        missing = [name for name in derived.get("required", ()) if name not in properties]
        if missing:
            raise InvalidSignature(
                f"tool {tool!r}: input_schema= must allow {missing[0]!r}, which the function requires; add it "
                "to 'properties', or give the parameter a default"
            )
    return copy.deepcopy(given)
