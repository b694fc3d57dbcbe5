"""Leaving out what fields hold, by their names: in arguments, answers, results, forms, and in texts that repeat it."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

__all__ = ["REDACTED", "SnapshotRedaction"]

REDACTED: Final = "<redacted>"

_SHORTEST: Final = 4
"""Characters of a value from which texts that repeat it are redacted; `no` and `12` are in many."""
_TELLING: Final = frozenset({"const", "default", "enum", "enumNames", "oneOf", "anyOf", "items", "examples", "example"})
"""What of a field's schema may give a value away."""


class SnapshotRedaction:
    """Knows which fields to leave out, and learns what they held."""

    def __init__(self, fields: Collection[str] = ()) -> None:
        self._fields = frozenset(fields)
        self._held: set[str] = set()

    def hides(self, name: str | None) -> bool:
        """Whether what is so named is left out."""
        return name in self._fields

    def data(self, value: Any) -> Any:
        """Somebody's data, without what the fields hold."""
        if not self._fields:
            return value
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {name: self.held(item) if self.hides(name) else self.data(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in cast("list[Any]", value)]
        return value

    def held(self, value: Any) -> str:
        """What stands for a value that is left out."""
        if isinstance(value, Mapping):
            for item in cast("Mapping[str, Any]", value).values():
                self.held(item)
        elif isinstance(value, list | tuple):
            for item in cast("list[Any]", value):
                self.held(item)
        elif (
            isinstance(value, str | int | float)
            and not isinstance(value, bool)
            and len(str(value).strip()) >= _SHORTEST
        ):
            self._held.add(str(value))
        return REDACTED

    def form(self, properties: Mapping[str, Any], *, all_of_it: bool = False) -> dict[str, Any]:
        """The fields of a form, without what the schema tells of the values of those that are left out."""
        return {
            name: self._shape(cast("Mapping[str, Any]", shape))
            if (all_of_it or self.hides(name)) and isinstance(shape, Mapping)
            else shape
            for name, shape in properties.items()
        }

    def _shape(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        if "default" in shape:
            self.held(shape["default"])
        return {name: REDACTED if name in _TELLING else item for name, item in shape.items()}

    def texts(self, value: Any) -> Any:
        """A value in which texts repeat nothing of what is left out, be it as it stands or in JSON."""
        if not self._fields:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {name: self.texts(item) for name, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.texts(item) for item in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in self._held:
            return REDACTED
        return value

    def _text(self, text: str) -> str:
        if text.lstrip()[:1] in ("{", "["):
            try:
                read: Any = json.loads(text)
            except (ValueError, RecursionError):
                read = None
            left: Any = self.data(read)
            if left != read:
                text = json.dumps(left, indent=2, ensure_ascii=False)
        # Longest first, as one may be in another.
        for held in sorted(self._held, key=lambda one: (-len(one), one)):
            text = text.replace(held, REDACTED)
        return text
