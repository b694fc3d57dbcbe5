"""JSON schemas of tools: inline references, add descriptions, and check values."""

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from jsonschema import FormatChecker, SchemaError, ValidationError
    from jsonschema.protocols import Validator

Check = Callable[[object], None]
"""Function that raises `SchemaMismatch` for a value that a schema does not allow."""

_GROWTH = 4000
"""Values that inlining may add to a schema."""

_SHOWN_VALUE = 80
_SHOWN_TEXT = 400
_COMPARED_ERRORS = 10

# Keywords that hold schemas; everything else is data, in which "$ref" is an ordinary word.
_NAMED = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"))
_LISTED = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SINGLE = frozenset(
    (
        "items",
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
# Keywords that forbid something; the others only describe, beside a `$ref` too.
_CONSTRAINTS = frozenset(
    (
        *(_NAMED | _LISTED | _SINGLE) - {"$defs", "definitions", "contentSchema"},
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    )
)
# Keywords that name a place; inlining would copy the name.
_NAMING = frozenset(("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"))
_DEFINITION = re.compile(r"#/\$defs/([^/]+)")


class SchemaMismatch(ValueError):
    """A value that a schema does not allow.

    Attributes:
        place: The place in the value, empty for its root.
        summary: The message without the value.
    """

    def __init__(self, place: str, problem: str, *, without_value: str | None = None) -> None:
        super().__init__(_at(place, problem))
        self.place = place
        self.summary = _at(place, problem if without_value is None else without_value)


def _at(place: str, problem: str) -> str:
    return f"{place}: {problem}" if place else problem


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace each local `$ref` by its definition, and remove `$defs`.

    Recursive definitions stay, with the references to them. A schema that would grow too much, or whose parts have
    addresses of their own, is returned unchanged.
    """
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return copy.deepcopy(schema)
    try:
        found = _Inliner(schema, cast("dict[str, Any]", definitions)).inlined()
    except RecursionError:
        found = None
    return copy.deepcopy(schema) if found is None else found


class _Inliner:
    def __init__(self, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._schema = schema
        self._definitions = definitions
        self._root = {key: value for key, value in schema.items() if key != "$defs"}
        self._references = {name: self._names_in(definition) for name, definition in definitions.items()}
        self._recursive = {name for name in definitions if name in self._reachable(self._references[name])}
        self._sizes: dict[str, int] = {}

    def inlined(self) -> dict[str, Any] | None:
        """Return the whole inlined schema; None if it must stay unchanged."""
        named = any(word in part for part in subschemas(self._schema) for word in _NAMING)
        if named or self._refers_elsewhere_into_definitions():
            return None
        kept = self._kept()
        grown = self._size(self._root) + sum(self._size(self._definitions[name]) for name in kept)
        if grown > _size(self._schema) + _GROWTH:
            return None
        root = self._inline_root()
        definitions = {name: self._inline(self._definitions[name]) for name in self._definitions if name in kept}
        return {**root, "$defs": definitions} if definitions else root

    def _inline_root(self) -> dict[str, Any]:
        name = self._name_of(self._root)
        target = self._definitions[name] if name is not None else None
        if name not in self._recursive or not isinstance(target, dict):
            return self._inline(self._root)
        # The root itself must have `type: object`, even a recursive one.
        definition = cast("dict[str, Any]", self._inline(target))
        siblings = {key: value for key, value in self._root.items() if key != "$ref"}
        return _merged(definition, cast("dict[str, Any]", self._inline(siblings)))

    def _inline(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return copy.deepcopy(schema)
        found: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", schema).items():
            if key in _NAMED and isinstance(value, dict):
                found[key] = {name: self._inline(part) for name, part in cast("dict[str, Any]", value).items()}
            elif (key in _LISTED or key == "items") and isinstance(value, list):
                found[key] = [self._inline(part) for part in cast("list[Any]", value)]
            elif key in _SINGLE:
                found[key] = self._inline(value)
            elif key == "discriminator" and isinstance(value, dict):
                found[key] = self._discriminator(cast("dict[str, Any]", value))
            else:
                found[key] = copy.deepcopy(value)
        name = self._name_of(found)
        if name is None or name in self._recursive:
            return found
        del found["$ref"]
        definition = self._inline(self._definitions[name])
        return _merged(definition, found)

    def _discriminator(self, value: dict[str, Any]) -> dict[str, Any]:
        mapping = value.get("mapping")
        targets = list(cast("dict[str, Any]", mapping).values()) if isinstance(mapping, dict) else []
        gone = any(_definition_name(target) not in {None, *self._recursive} for target in targets)
        return copy.deepcopy({key: part for key, part in value.items() if not (gone and key == "mapping")})

    def _name_of(self, schema: Mapping[str, Any]) -> str | None:
        """Return the name of the existing definition that a schema refers to."""
        name = _definition_name(schema.get("$ref"))
        return name if name in self._definitions else None

    def _names_in(self, schema: Any) -> frozenset[str]:
        names = (self._name_of(part) for part in subschemas(schema))
        return frozenset(name for name in names if name is not None)

    def _refers_elsewhere_into_definitions(self) -> bool:
        """Return True if a reference points inside a definition, or to a missing one."""
        nameless = (part.get("$ref") for part in subschemas(self._schema) if self._name_of(part) is None)
        return any(isinstance(ref, str) and ref.startswith("#/$defs") for ref in nameless)

    def _reachable(self, names: frozenset[str]) -> set[str]:
        seen: set[str] = set()
        ahead = list(names)
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead += self._references[name]
        return seen

    def _kept(self) -> set[str]:
        """Return the recursive definitions that are still referred to."""
        start = self._names_in(self._root)
        return self._reachable(start) & self._recursive

    def _size(self, schema: Any) -> int:
        """Count the values of a schema after its references are replaced."""
        size = _size(schema)
        for part in subschemas(schema):
            name = self._name_of(part)
            if name is not None and name not in self._recursive:
                if name not in self._sizes:
                    self._sizes[name] = self._size(self._definitions[name])
                size += self._sizes[name]
        return size


def _merged(definition: Any, siblings: dict[str, Any]) -> Any:
    """Merge a definition with the keywords beside the reference to it."""
    if not siblings:
        return definition
    if isinstance(definition, dict) and not _CONSTRAINTS & siblings.keys():
        return {**cast("dict[str, Any]", definition), **siblings}
    # A constraint beside a reference adds to the definition, and must not replace a part of it.
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
        if key in _NAMED and isinstance(value, dict):
            parts = list(cast("dict[str, Any]", value).values())
        elif (key in _LISTED or key == "items") and isinstance(value, list):
            parts = cast("list[Any]", value)
        else:
            parts = [value] if key in _SINGLE else []
        for part in parts:
            yield from subschemas(part)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, cast("dict[str, Any]", value).values()))
    return 1 + sum(map(_size, cast("list[Any]", value))) if isinstance(value, list) else 1


def with_descriptions(schema: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Add a description to each property without one.

    Call it before `inlined`, which would copy descriptions of definitions into properties.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not descriptions:
        return schema
    described: dict[str, Any] = {}
    for name, part in cast("dict[str, Any]", properties).items():
        text = descriptions.get(name)
        lacks = text and isinstance(part, dict) and "description" not in part
        described[name] = {**cast("dict[str, Any]", part), "description": text} if lacks else part
    return {**schema, "properties": described}


def checker(schema: Mapping[str, Any]) -> Check:
    """Return a check of values by a schema.

    It fetches no references: a reference that leads out of the schema is an error.

    Raises:
        ValueError: The JSON schema is invalid.
    """
    return check_of_own(copy.deepcopy(dict(schema)))


def check_of_own(schema: dict[str, Any], formats: "FormatChecker | None" = None) -> Check:
    """Return a check of values by a schema, which must not change; see `checker`."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import extend, validator_for  # pyright: ignore[reportUnknownVariableType]
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"not a valid JSON schema: {_mismatch(error)}") from error
    except RecursionError:
        raise ValueError("not a usable JSON schema: it is nested too deeply") from None
    if (reference := _missing_reference(schema)) is not None:
        raise ValueError(f"not a valid JSON schema: it refers to {reference!r}, which is not in it")
    brief = {word: _briefly(kind.VALIDATORS[word]) for word in ("anyOf", "oneOf") if word in kind.VALIDATORS}
    # An empty registry: the default one fetches unknown references.
    validator: Validator = cast("Any", extend)(kind, brief)(
        schema, registry=cast("Any", Registry)(), format_checker=formats
    )

    def check(value: object) -> None:
        try:
            error = _best_match(itertools.islice(validator.iter_errors(cast("Any", value)), _COMPARED_ERRORS))
            if error is not None:
                raise _mismatch(error)
        except RecursionError:
            raise SchemaMismatch("", "the value is nested too deeply") from None
        except Unresolvable as unknown:
            raise SchemaMismatch("", f"the schema refers to {unknown.ref!r}, which is not in it") from unknown

    return check


def _briefly(keyword: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `anyOf` or `oneOf` to collect only a few errors of each schema."""

    def collect(validator: Any, *rest: Any) -> Any:
        return keyword(_Brief(validator), *rest)

    return collect


class _Brief:
    """The part of a validator that `anyOf` and `oneOf` use, with few errors."""

    def __init__(self, validator: Any) -> None:
        self.evolve = validator.evolve
        self._validator = validator

    def descend(self, *args: Any, **options: Any) -> Iterator[Any]:
        return itertools.islice(self._validator.descend(*args, **options), _COMPARED_ERRORS)


def _missing_reference(schema: dict[str, Any]) -> str | None:
    """Return a reference without a target; None if all have one, or if parts with their own addresses hide it."""
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    parts = list(subschemas(schema))
    if any("$id" in part or "id" in part for part in parts[1:]):
        return None
    specification = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    resolver = REGISTRY.resolver_with_root(specification.create_resource(schema))
    for part in parts:
        reference = part.get("$ref")
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                return reference
    return None


def _best_match(errors: "Iterable[ValidationError]") -> "ValidationError | None":
    """Return the outermost error, or the most relevant error inside it."""
    from jsonschema import exceptions

    first = min(errors, key=lambda error: len(error.path), default=None)
    # jsonschema is untyped here.
    return cast(
        "ValidationError | None",
        exceptions.best_match([first] if first is not None else []),  # pyright: ignore[reportUnknownMemberType]
    )


def _mismatch(error: "ValidationError | SchemaError") -> SchemaMismatch:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    whole = repr(error.instance)
    shown = _short(whole, _SHOWN_VALUE)
    arms = error.context or []
    if arms and all(arm.validator == "type" and not arm.path and isinstance(arm.validator_value, str) for arm in arms):
        # Replaces "not valid under any of the given schemas", which does not say what is expected.
        rest = f" is not of type {', '.join(repr(arm.validator_value) for arm in arms)}"
        problem, without_value = f"{shown}{rest}", f"the value{rest}"
    else:
        problem = error.message.replace(whole, shown)
        without_value = error.message.replace(whole, "the value", 1)
    return SchemaMismatch(
        _short(place.removeprefix("."), _SHOWN_TEXT),
        _short(problem, _SHOWN_TEXT),
        without_value=_short(without_value, _SHOWN_TEXT),
    )


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
