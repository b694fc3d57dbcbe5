"""Read JSON from somebody else, whose shape is unknown: what has another shape counts as empty."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return an object of JSON as it is, and anything else as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not JSON, which has no `NaN` and no `Infinity`, or a number in it is too large.
        RecursionError: It is nested too deeply.
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
    """Yield the values in JSON that hold no others, each with the name of its field; an item of a list has none."""
    if isinstance(value, Mapping):
        for inner, item in cast("Mapping[str, object]", value).items():
            yield from leaves_of(item, inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[object]", value):
            yield from leaves_of(item)
    else:
        yield name, value
