"""JSON schemas for tools: inline references, and iterate over subschemas."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

_MAX_ADDED_VALUES: Final = 4000
"""Maximum number of values that inlining may add to a schema."""

_KEYWORDS: Final = {
    # Keywords whose values are schemas. All other values are data, where "$ref" has no special meaning.
    "named": "properties patternProperties dependentSchemas dependencies $defs definitions",
    "listed": "allOf anyOf oneOf prefixItems",
    "single": "items additionalItems additionalProperties contains contentSchema else if not propertyNames then "
    "unevaluatedItems unevaluatedProperties",
    "limit": "const dependentRequired enum exclusiveMaximum exclusiveMinimum maxContains maxItems maxLength "
    "maxProperties maximum minContains minItems minLength minProperties minimum multipleOf pattern required type "
    "uniqueItems",
}
_KIND_OF: Final = {word: kind for kind, words in _KEYWORDS.items() for word in words.split()}
# Keywords that restrict values. All other keywords are only descriptions, even beside a `$ref`.
_CONSTRAINTS: Final = _KIND_OF.keys() - {"$defs", "definitions", "contentSchema"}
# Keywords that name a location in the schema. Inlining would duplicate the name.
_LOCATION_KEYWORDS: Final = frozenset(
    ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef")
)
_DEFINITION: Final = re.compile(r"#/\$defs/([^/]+)")


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace each local `$ref` by its definition, and remove `$defs`.

    Recursive definitions and the references to them stay. A schema is returned unchanged if it would grow too much, or
    if its parts have their own addresses.
    """
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return copy.deepcopy(schema)
    try:
        result = _Inliner(schema, cast("dict[str, Any]", definitions)).inlined()
    except (RecursionError, _SchemaTooLarge):
        result = None
    return copy.deepcopy(schema) if result is None else result


class _SchemaTooLarge(Exception):
    """Schema that inlining would enlarge too much."""


class _Inliner:
    def __init__(self, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._schema = schema
        self._definitions = definitions
        self._root = {key: value for key, value in schema.items() if key != "$defs"}
        self._references = {name: self._names_in(definition) for name, definition in definitions.items()}
        self._recursive = {name for name in definitions if name in self._reachable(self._references[name])}
        self._budget = _size(schema) + _MAX_ADDED_VALUES - _size(self._root)
        """Number of values that inlining may still add."""

    def inlined(self) -> dict[str, Any] | None:
        """Return the inlined schema; None if the schema must stay unchanged.

        Raises:
            _SchemaTooLarge: The schema would grow too much.
        """
        for part in subschemas(self._schema):
            # A reference to the inside of a definition, or to a missing definition.
            is_not_inlinable = self._name_of(part) is None and str(part.get("$ref")).startswith("#/$defs")
            if is_not_inlinable or any(word in part for word in _LOCATION_KEYWORDS):
                return None
        # Keep the recursive definitions that the schema still refers to.
        reachable = self._reachable(self._names_in(self._root))
        kept_definitions = {
            name: part for name, part in self._definitions.items() if name in reachable & self._recursive
        }
        self._budget -= sum(map(_size, kept_definitions.values()))
        root = self._inline_root()
        definitions = {name: self._inline(part) for name, part in kept_definitions.items()}
        return {**root, "$defs": definitions} if definitions else root

    def _inline_root(self) -> dict[str, Any]:
        name = self._name_of(self._root)
        target = self._definitions[name] if name is not None else None
        if name not in self._recursive or not isinstance(target, dict):
            return self._inline(self._root)
        # Inline the root even if it is recursive: the protocol requires `type: object` at the root.
        definition = cast("dict[str, Any]", self._inline(target))
        siblings = {key: value for key, value in self._root.items() if key != "$ref"}
        return _merged(definition, cast("dict[str, Any]", self._inline(siblings)))

    def _inline(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return copy.deepcopy(schema)
        result: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", schema).items():
            kind = _KIND_OF.get(key)
            if kind == "named" and isinstance(value, dict):
                result[key] = {name: self._inline(part) for name, part in cast("dict[str, Any]", value).items()}
            elif (kind == "listed" or key == "items") and isinstance(value, list):
                result[key] = [self._inline(part) for part in cast("list[Any]", value)]
            elif kind == "single":
                result[key] = self._inline(value)
            elif key == "discriminator" and isinstance(value, dict):
                result[key] = self._discriminator(cast("dict[str, Any]", value))
            else:
                result[key] = copy.deepcopy(value)
        name = self._name_of(result)
        if name is None or name in self._recursive:
            return result
        del result["$ref"]
        self._budget -= _size(self._definitions[name])
        if self._budget < 0:
            raise _SchemaTooLarge
        definition = self._inline(self._definitions[name])
        return _merged(definition, result)

    def _discriminator(self, value: dict[str, Any]) -> dict[str, Any]:
        mapping = value.get("mapping")
        targets = list(cast("dict[str, Any]", mapping).values()) if isinstance(mapping, dict) else []
        is_inlined = any(_definition_name(target) not in {None, *self._recursive} for target in targets)
        return copy.deepcopy({key: part for key, part in value.items() if not (is_inlined and key == "mapping")})

    def _name_of(self, schema: Mapping[str, Any]) -> str | None:
        """Return the name of the definition that a schema refers to; None if there is no such definition."""
        name = _definition_name(schema.get("$ref"))
        return name if name in self._definitions else None

    def _names_in(self, schema: Any) -> frozenset[str]:
        names = (self._name_of(part) for part in subschemas(schema))
        return frozenset(name for name in names if name is not None)

    def _reachable(self, names: frozenset[str]) -> set[str]:
        seen: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += self._references[name]
        return seen


def _merged(definition: Any, siblings: dict[str, Any]) -> Any:
    """Merge a definition with the keywords that stand beside the reference to it."""
    if not siblings:
        return definition
    if isinstance(definition, dict) and not _CONSTRAINTS & siblings.keys():
        return {**cast("dict[str, Any]", definition), **siblings}
    # A constraint beside a reference applies in addition to the definition, so it must not overwrite any part of the
    # definition.
    merged: dict[str, Any] = {**siblings, "allOf": [*siblings.get("allOf", []), definition]}
    if isinstance(definition, dict) and "type" not in merged and "type" in definition:
        merged["type"] = copy.deepcopy(cast("dict[str, Any]", definition)["type"])
    return merged


def _definition_name(ref: object) -> str | None:
    match = _DEFINITION.fullmatch(ref) if isinstance(ref, str) else None
    return unquote(match[1]).replace("~1", "/").replace("~0", "~") if match is not None else None


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema inside it."""
    if not isinstance(schema, dict):
        return
    yield cast("dict[str, Any]", schema)
    for key, value in cast("dict[str, Any]", schema).items():
        kind = _KIND_OF.get(key)
        if kind == "named" and isinstance(value, dict):
            parts = list(cast("dict[str, Any]", value).values())
        elif (kind == "listed" or key == "items") and isinstance(value, list):
            parts = cast("list[Any]", value)
        else:
            parts = [value] if kind == "single" else []
        for part in parts:
            yield from subschemas(part)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, cast("dict[str, Any]", value).values()))
    return 1 + sum(map(_size, cast("list[Any]", value))) if isinstance(value, list) else 1
