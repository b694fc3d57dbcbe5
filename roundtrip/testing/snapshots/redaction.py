"""Redaction of named fields in arguments, answers, results and forms, and of their values in other texts."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

REDACTED: Final = "<redacted>"

_MIN_REPEATED_CHARS: Final = 4
"""The minimum length at which a value is redacted in other texts. Shorter values, such as `no` or `12`, appear in many
texts by chance.
"""
_REVEALING_KEYWORDS: Final = frozenset(
    {"const", "default", "enum", "enumNames", "oneOf", "anyOf", "items", "examples", "example"}
)
"""Schema keywords that may reveal a field's value."""


class SnapshotRedaction:
    """The names of the fields to redact, and the values that these fields have had so far."""

    def __init__(self, fields: Collection[str] = ()) -> None:
        self._fields = frozenset(fields)
        self._values: set[str] = set()

    def hides(self, name: str | None) -> bool:
        """Return True if fields and questions with this name are redacted."""
        return name in self._fields

    def data(self, value: Any) -> Any:
        """Return user data in which the values of redacted fields are replaced."""
        if not self._fields:
            return value
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {name: self.redact(item) if self.hides(name) else self.data(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in cast("list[Any]", value)]
        return value

    def redact(self, value: Any) -> str:
        """Return the text that replaces a value. Remember the value, so that it is also redacted in other texts."""
        if isinstance(value, Mapping | list | tuple):
            for item in cast("list[Any]", value.values() if isinstance(value, Mapping) else value):
                self.redact(item)
        elif value is not None and not isinstance(value, bool) and len(str(value).strip()) >= _MIN_REPEATED_CHARS:
            self._values.add(str(value))
        return REDACTED

    def form(self, properties: Mapping[str, Any], *, hides_all: bool = False) -> dict[str, Any]:
        """Return a form's fields without the schema keywords that would reveal redacted values."""
        return {
            name: self._shape(cast("Mapping[str, Any]", shape))
            if (hides_all or self.hides(name)) and isinstance(shape, Mapping)
            else shape
            for name, shape in properties.items()
        }

    def _shape(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        if "default" in shape:
            self.redact(shape["default"])
        return {name: REDACTED if name in _REVEALING_KEYWORDS else item for name, item in shape.items()}

    def texts(self, value: Any) -> Any:
        """Redact remembered values in all texts in `value`, including texts that contain JSON."""
        if not self._fields:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {name: self.texts(item) for name, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.texts(item) for item in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in self._values:
            return REDACTED
        return value

    def _text(self, text: str) -> str:
        if text.lstrip()[:1] in ("{", "["):
            try:
                read: Any = json.loads(text)
            except (ValueError, RecursionError):
                read = None
            redacted: Any = self.data(read)
            if redacted != read:
                text = json.dumps(redacted, indent=2, ensure_ascii=False)
        # Replace the longest value first, because one value may contain another.
        for value in sorted(self._values, key=lambda value: (-len(value), value)):
            text = text.replace(value, REDACTED)
        return text
