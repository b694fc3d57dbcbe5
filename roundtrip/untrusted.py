"""Untrusted JSON of unknown shape. A value with an unexpected shape counts as empty."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from typing_extensions import TypeIs


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object unchanged; an empty object for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """Return a list unchanged; an empty list for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def is_texts(value: object) -> TypeIs[list[str]]:
    """Return True if a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not valid JSON, contains `NaN` or `Infinity`, or has a number that is too large.
        RecursionError: The value is nested too deeply.
    """
    return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def leaves_of(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value that is not a list or object, with the name of its field. List items have no name."""
    if isinstance(value, Mapping):
        for inner, item in cast("Mapping[str, object]", value).items():
            yield from leaves_of(item, inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[object]", value):
            yield from leaves_of(item)
    else:
        yield name, value
