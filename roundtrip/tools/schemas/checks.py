"""JSON schema checks for arguments and results."""

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from roundtrip.errors import InvalidSignature
from roundtrip.text import shortened
from roundtrip.tools.schemas.inlining import subschemas

if TYPE_CHECKING:
    from jsonschema import FormatChecker, SchemaError, ValidationError
    from jsonschema.protocols import Validator

Check = Callable[[object], None]
"""Function that raises `SchemaMismatch` for a value that violates its schema."""

_MAX_VALUE_CHARS = 80
_MAX_TEXT_CHARS = 400
_MAX_ERRORS = 10

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
# A regular expression per JSON schema format. A time without a zone matches, because pydantic reads and writes such
# times.
_FORMATS = {
    "date": _DATE,
    "date-time": f"{_DATE}[Tt ]{_TIME}",
    "duration": "[+-]?P[0-9DHMSTWY.,]+",
    "time": _TIME,
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


class SchemaMismatch(ValueError):
    """Value that violates a schema.

    Attributes:
        place: Path to the invalid part; empty if the whole value is invalid.
        summary: The message without the value.
    """

    def __init__(self, place: str, problem: str, *, without_value: str | None = None) -> None:
        super().__init__(_at(place, problem))
        self.place = place
        self.summary = _at(place, problem if without_value is None else without_value)


def _at(place: str, problem: str) -> str:
    return f"{place}: {problem}" if place else problem


def check_of(schema: dict[str, Any], *, tool: str) -> Callable[[object], None]:
    """Return a check that validates a tool's arguments against its input schema.

    Raises:
        InvalidSignature: The schema is invalid.
    """
    try:
        return input_checker(schema)
    except ValueError as error:
        raise InvalidSignature(f"tool {tool!r}: its input schema cannot be checked: {error}") from error


def checked_schema(given: dict[str, Any], derived: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    """Return a copy of an author's input schema. The schema must let clients send every required argument.

    Raises:
        InvalidSignature: The schema does not describe an object, or forbids an argument that the function requires.
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
    """Return a check for values from clients. Its running time depends only on the value's size.

    Patterns and uniqueness are left to pydantic. Dates, times, durations and UUIDs must match their `format`.

    Raises:
        ValueError: The JSON schema is invalid.
    """
    from jsonschema import FormatChecker

    fixed = copy.deepcopy(dict(schema))
    for part in subschemas(fixed):
        # A client's text could make a pattern in `re` backtrack forever, and a uniqueness check compares every pair of
        # items.
        part.pop("pattern", None)
        part.pop("uniqueItems", None)
        named = part.pop("patternProperties", None)
        if isinstance(named, dict):
            part["additionalProperties"] = {"anyOf": [*cast("dict[str, Any]", named).values()]}
    formats = FormatChecker(formats=())
    for name, pattern in _FORMATS.items():
        formats.checks(name)(_format_check(pattern))
    return _compile_check(fixed, formats)


def _format_check(pattern: str) -> Callable[[object], bool]:
    compiled = re.compile(pattern)
    return lambda value: not isinstance(value, str) or compiled.fullmatch(value) is not None


def checker(schema: Mapping[str, Any]) -> Check:
    """Return a check that validates values against a schema.

    References are never fetched: a reference to something outside the schema is an error.

    Raises:
        ValueError: The JSON schema is invalid.
    """
    return _compile_check(copy.deepcopy(dict(schema)))


def _compile_check(schema: dict[str, Any], formats: "FormatChecker | None" = None) -> Check:
    """Compile a schema without copying it, so no other code may change the schema; see `checker`."""
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
        raise ValueError(f"not a valid JSON schema: it refers to {reference!r}, which it does not contain")
    brief = {word: _with_few_errors(kind.VALIDATORS[word]) for word in ("anyOf", "oneOf") if word in kind.VALIDATORS}
    # Pass an empty registry: the default registry fetches unknown references.
    validator: Validator = cast("Any", extend)(kind, brief)(
        schema, registry=cast("Any", Registry)(), format_checker=formats
    )

    def check(value: object) -> None:
        try:
            error = _best_match(itertools.islice(validator.iter_errors(cast("Any", value)), _MAX_ERRORS))
            if error is not None:
                raise _mismatch(error)
        except RecursionError:
            raise SchemaMismatch("", "the value is nested too deeply") from None
        except Unresolvable as unknown:
            raise SchemaMismatch("", f"the schema refers to {unknown.ref!r}, which it does not contain") from unknown

    return check


def _with_few_errors(keyword: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `anyOf` or `oneOf` so that it collects only a few errors for each alternative."""

    def collect(validator: Any, *rest: Any) -> Any:
        return keyword(_LimitedValidator(validator), *rest)

    return collect


class _LimitedValidator:
    """Validator with only the methods that `anyOf` and `oneOf` use, limited to a few errors."""

    def __init__(self, validator: Any) -> None:
        self.evolve = validator.evolve
        self._validator = validator

    def descend(self, *args: Any, **options: Any) -> Iterator[Any]:
        return itertools.islice(self._validator.descend(*args, **options), _MAX_ERRORS)


def _missing_reference(schema: dict[str, Any]) -> str | None:
    """Return a reference that has no target; None if every reference has one.

    If parts of the schema declare their own addresses, the schema is not searched.
    """
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
    """Return the error nearest to the root; for `anyOf` and `oneOf`, the most relevant error among the alternatives."""
    from jsonschema import exceptions

    first = min(errors, key=lambda error: len(error.path), default=None)
    # jsonschema has no type for this function.
    return cast(
        "ValidationError | None",
        exceptions.best_match([first] if first is not None else []),  # pyright: ignore[reportUnknownMemberType]
    )


def _mismatch(error: "ValidationError | SchemaError") -> SchemaMismatch:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    whole = repr(error.instance)
    shown = shortened(whole, _MAX_VALUE_CHARS, ending="...")
    arms = error.context or []
    if arms and all(arm.validator == "type" and not arm.path and isinstance(arm.validator_value, str) for arm in arms):
        # Replace "not valid under any of the given schemas", because it does not say which types are expected.
        rest = f" is not of type {', '.join(repr(arm.validator_value) for arm in arms)}"
        problem, without_value = f"{shown}{rest}", f"the value{rest}"
    else:
        problem = error.message.replace(whole, shown)
        without_value = error.message.replace(whole, "the value", 1)
    return SchemaMismatch(
        shortened(place.removeprefix("."), _MAX_TEXT_CHARS, ending="..."),
        shortened(problem, _MAX_TEXT_CHARS, ending="..."),
        without_value=shortened(without_value, _MAX_TEXT_CHARS, ending="..."),
    )
