"""Check the input schemas that authors write, and arguments against a tool's schema."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from roundtrip.errors import InvalidSignature
from roundtrip.tools.schemas import Check, check_of_own, subschemas

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
# Patterns of formats. Times without a zone fit too, as pydantic writes and reads them.
_FORMATS = {
    "date": _DATE,
    "date-time": f"{_DATE}[Tt ]{_TIME}",
    "duration": "[+-]?P[0-9DHMSTWY.,]+",
    "time": _TIME,
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


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


def input_checker(schema: Mapping[str, Any]) -> Check:
    """Return a `checker` for values from clients. The time of a check depends only on the size of the value.

    Pydantic checks patterns and uniqueness. Dates, times, durations and UUIDs must match their `format`.

    Raises:
        ValueError: The JSON schema is invalid.
    """
    from jsonschema import FormatChecker

    fixed = copy.deepcopy(dict(schema))
    for part in subschemas(fixed):
        # A pattern of values or names may backtrack forever in `re`; uniqueness compares all pairs.
        part.pop("pattern", None)
        part.pop("uniqueItems", None)
        named = part.pop("patternProperties", None)
        if isinstance(named, dict):
            part["additionalProperties"] = {"anyOf": [*cast("dict[str, Any]", named).values()]}
    formats = FormatChecker(formats=())
    for name, pattern in _FORMATS.items():
        formats.checks(name)(_looking_like(pattern))
    return check_of_own(fixed, formats)


def _looking_like(pattern: str) -> Callable[[object], bool]:
    looks = re.compile(pattern)
    return lambda value: not isinstance(value, str) or looks.fullmatch(value) is not None
