"""Attacks on arguments: changed arguments, made from a request's arguments and its tool's schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from roundtrip.untrusted import list_of, mapping_of


def other_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield other values for each argument in the request, and values for each argument that the request leaves out."""
    properties = mapping_of(schema.get("properties"))
    for name in dict.fromkeys([*arguments, *properties]):
        # A property's schema may also be `true`.
        shape = mapping_of(properties.get(name))
        current = arguments.get(name)
        enum_values = [value for value in list_of(shape.get("enum")) if value != current]
        derived = _samples(shape) if name not in arguments else other_values(current)
        yield name, [*enum_values, *(value for value in derived if value != current or name not in arguments)]


def other_values(value: Any) -> list[Any]:
    """Return other values with the same type, the most similar first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    if isinstance(value, str):
        digits = re.sub(r"\d(?=\D*$)", lambda last: str((int(last[0]) + 1) % 10), value)
        return [f"{value}x", digits, value[:-1], value.swapcase()]
    if isinstance(value, list):
        items = cast("list[Any]", value)
        changed = [[*items[:-1], other] for other in other_values(items[-1])] if items else []
        return [*changed, [*items, *items[-1:]], items[:-1]]
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return [{**fields, name: other} for name, item in fields.items() for other in other_values(item)[:1]]
    return ["x"]


def _samples(shape: Mapping[str, Any]) -> list[Any]:
    """Return the values to try for an argument that the request leaves out."""
    if "default" in shape:
        return other_values(shape["default"])
    samples: dict[str, Any] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}
    return [sample for kind, sample in samples.items() if kind == shape.get("type")]
