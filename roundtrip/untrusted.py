"""Read JSON from somebody else, whose shape is unknown: what has another shape counts as empty."""

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["list_of", "mapping_of"]


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return an object of JSON as it is, and anything else as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []
