"""Sample answers made from a form's schema: a simple answer, a second answer, and one invalid answer for each rule.

The samples are the simplest values that fit, such as `text`, `1` or the first choice. A server may still reject them,
because it may check rules that its form does not show, for example that a date is in the past. An invalid answer stays
invalid under any type conversion. No value is a nested object, because an `ElicitResult` cannot contain nested objects.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from jsonschema import Draft202012Validator, FormatChecker, SchemaError

from roundtrip.questions.fields import FORMATS, FieldKind, FormField, fields_of
from roundtrip.text import printable

_MAX_SAMPLE_SIZE: Final = 100_000
"""Maximum number of characters in a text, or of items in a list."""
_WORDS: Final = ("text", "other")
_FORMATTED: Final[Mapping[str, tuple[str, ...]]] = {
    "email": ("ada@example.com", "eve@example.com"),
    "uri": ("https://example.com/", "https://example.org/"),
    "date": ("2026-07-28", "2026-07-29"),
    "date-time": ("2026-07-28T09:30:00Z", "2026-07-29T09:30:00Z"),
}
_SHORT: Final[Mapping[str, tuple[str, ...]]] = {"email": ("a@b.co", "e@b.co"), "uri": ("urn:a", "urn:b")}
_PADDED: Final[Mapping[str, tuple[str, str]]] = {"email": ("", "@example.com"), "uri": ("https://example.com/", "")}
_PATTERN_LETTERS: Final = "aA1"
_MAX_PATTERN_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class FieldSamples:
    """Valid and invalid sample values for a field, the simplest first."""

    field: FormField
    shape: Mapping[str, Any]
    fits: Callable[[Any], bool]
    """A function that checks a value against the field's schema."""
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]

    @property
    def is_filled_in(self) -> bool:
        """Return True if the simplest answer includes the field."""
        return self.field.required or (self.field.has_default and self.fits(self.field.default))

    @property
    def is_needed(self) -> bool:
        """Return True if an answer without the field is invalid."""
        # Some servers use the default for a required field that is left out.
        return self.field.required and not self.field.has_default


def valid_answer(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the simplest content that a form accepts.

    The content has the form's defaults, and samples for the required fields without a valid default.

    Raises:
        ValueError: The schema is not a form, or no valid answer is known.
    """
    return {samples.field.name: samples.valid[0] for samples in samples_of(schema) if samples.is_filled_in}


def other_valid_answer(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return valid content in which as many values as possible differ from `valid_answer`; None if there is none.

    Raises:
        ValueError: The schema is not a form, or no valid answer is known.
    """
    other = {
        samples.field.name: samples.valid[:2][-1] if samples.is_filled_in else samples.valid[0]
        for samples in samples_of(schema)
        if samples.valid
    }
    return other if other != valid_answer(schema) else None


def invalid_answers(schema: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return invalid answers, each of which the form rejects for a different reason. A form without fields has none.

    Raises:
        ValueError: The schema is not a form, or no valid answer is known.
    """
    fields = samples_of(schema)
    valid = valid_answer(schema)
    missing = [samples.field.name for samples in fields if samples.is_needed]
    answers = [{name: value for name, value in valid.items() if name != left_out} for left_out in missing]
    return answers + [{**valid, samples.field.name: value} for samples in fields for value in samples.invalid]


def samples_of(schema: Mapping[str, Any] | None) -> list[FieldSamples]:
    """Return a form's fields, with sample values.

    Raises:
        ValueError: The schema is not a form, or no valid value of a required field is known.
    """
    if schema is None:
        raise ValueError("the question has no form, because it has no schema")
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "schema"
        raise ValueError(printable(f"the schema is not a valid JSON schema: {where}: {error.message}")) from error
    shapes = cast("Mapping[str, Any] | None", schema.get("properties"))
    if schema.get("type") != "object" or shapes is None:
        raise ValueError("the schema is not a form: a form must have type 'object' and its fields in 'properties'")
    unknown_names = [name for name in schema.get("required", ()) if name not in shapes]
    if unknown_names:
        raise ValueError(f"the form requires {unknown_names[0]!r}, which is not one of its fields")
    fields = fields_of(schema)
    for field in fields:
        if field.kind is FieldKind.JSON:
            raise ValueError(
                f"field {field.name!r} does not fit a form: its type must be a string, a number, a boolean, a choice "
                "of strings or a list of such choices"
            )
    return [_samples(field, shapes[field.name]) for field in fields]


def _samples(field: FormField, shape: Mapping[str, Any]) -> FieldSamples:
    validator = Draft202012Validator(dict(shape), format_checker=_formats())
    fits = cast("Callable[[Any], bool]", validator.is_valid)  # pyright: ignore[reportUnknownMemberType]
    valid = [field.default] if field.has_default else []
    valid = _distinct(value for value in (*valid, *_VALID[field.kind](field, shape)) if fits(value))
    if field.required and not valid:
        raise ValueError(
            f"no valid value of the required field {field.name!r} is known; its schema is {dict(shape)!r}. "
            "Write the answer explicitly"
        )
    invalid = [value for value in _INVALID[field.kind](field, shape) if not fits(value)]
    return FieldSamples(field, shape, fits, valid, _distinct(invalid))


def _formats() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, (_, check) in FORMATS.items():
        checker.checks(name)(_check_only_texts(check))
    return checker


def _check_only_texts(check: Callable[[str], bool]) -> Callable[[object], bool]:
    # A format restricts only strings.
    return lambda value: not isinstance(value, str) or check(value)


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return tuple(distinct)


def _valid_texts(field: FormField, shape: Mapping[str, Any]) -> Iterator[str]:
    least, most = field.least or 0, _MAX_SAMPLE_SIZE if field.most is None else field.most
    if least > _MAX_SAMPLE_SIZE:
        return
    if field.format is not None:
        usual = _FORMATTED[field.format]
        yield from usual if len(usual[0]) <= most else _SHORT.get(field.format, ())
        if field.format in _PADDED:
            head, tail = _PADDED[field.format]
            room = max(int(least) - len(head + tail), 1)
            yield from (head + letter * room + tail for letter in "ab")
        return
    for word in _WORDS:
        repeated = word * (math.ceil(least / len(word)) or 1)
        yield repeated[: math.floor(min(most, max(least, len(word))))]
    if "pattern" in shape:
        yield from (letter * n for n in range(1, _MAX_PATTERN_CHARS + 1) for letter in _PATTERN_LETTERS)


def _invalid_texts(field: FormField, shape: Mapping[str, Any]) -> Iterator[Any]:
    yield ["text"]
    if field.format is not None:
        yield f"not a {field.format}"
    if "pattern" in shape:
        yield from ("!", *_WORDS)
    if field.least is not None and 1 <= field.least <= _MAX_SAMPLE_SIZE:
        yield ("text" * math.ceil(field.least / 4))[: math.ceil(field.least) - 1]
    if field.most is not None and field.most < _MAX_SAMPLE_SIZE:
        head, tail = _PADDED.get(field.format or "", ("", ""))
        yield head + "a" * (math.floor(field.most) + 1) + tail


def _valid_numbers(field: FormField, shape: Mapping[str, Any]) -> Iterator[float]:
    low, high = range_of(shape)
    step = shape.get("multipleOf")
    # Try 1 first, because "greater than zero" is the most common rule that a form does not show.
    candidates: list[float] = [1, 2, 0]
    if step is not None:
        candidates += [step * math.ceil((low or 0) / step), step * (math.ceil((low or 0) / step) + 1)]
    if low is not None:
        candidates += [low, low + 1]
    if high is not None:
        candidates += [high, high - 1]
    if low is not None and high is not None and field.kind is FieldKind.NUMBER:
        candidates.append(low / 2 + high / 2)
    if field.kind is FieldKind.NUMBER:
        yield from candidates
    else:
        yield from (whole for number in candidates for whole in (math.ceil(number), math.floor(number)))


def _invalid_numbers(field: FormField, shape: Mapping[str, Any]) -> Iterator[Any]:
    yield "not a number"
    yield ["1"]
    if field.kind is FieldKind.WHOLE:
        yield 1.5
    yield from (bound - clearance(field, bound) for bound in _bounds(shape, "minimum"))
    yield from (bound + clearance(field, bound) for bound in _bounds(shape, "maximum"))
    yield from _bounds(shape, "exclusiveMinimum", "exclusiveMaximum")


def clearance(field: FormField, bound: float) -> float:
    """Return how far a value must lie from its limit. The distance is large enough to survive rounding."""
    return max(1, abs(bound) // 1000) if field.kind is FieldKind.NUMBER else 1


def range_of(shape: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return a number's bounds. Exclusive bounds are treated as inclusive bounds."""
    low = max(_bounds(shape, "minimum", "exclusiveMinimum"), default=None)
    return low, min(_bounds(shape, "maximum", "exclusiveMaximum"), default=None)


def _bounds(shape: Mapping[str, Any], *names: str) -> list[float]:
    # Python parses the JSON number 1e999 as infinity.
    return [shape[name] for name in names if name in shape and -math.inf < shape[name] < math.inf]


def _valid_lists(field: FormField, shape: Mapping[str, Any]) -> Iterator[list[str]]:
    choices = [choice.value for choice in field.choices]
    least = math.ceil(field.least or 0)
    if least > _MAX_SAMPLE_SIZE:
        return
    # Repeat choices only if the list must have more items than there are choices. A server may read the list as a set.
    enough = choices if least <= len(choices) else choices * math.ceil(least / len(choices))
    yield enough[: max(least, 1)]
    yield enough[-max(least, 1) :]
    yield []
    yield choices


def _invalid_lists(field: FormField, shape: Mapping[str, Any]) -> Iterator[Any]:
    choices = [choice.value for choice in field.choices]
    unknown = _unknown_choice(field)
    yield unknown
    least = math.ceil(field.least or 0)
    if 1 <= least <= len(choices):
        yield choices[: least - 1]
    yield [*choices[: max(least - 1, 0)], unknown]
    if field.most is not None:
        yield choices[: math.floor(field.most) + 1]


def _unknown_choice(field: FormField) -> str:
    unknown = "none of these"
    while any(unknown == choice.value for choice in field.choices):
        unknown += "!"
    return unknown


_VALID: Final[Mapping[FieldKind, Callable[[FormField, Mapping[str, Any]], Iterable[Any]]]] = {
    FieldKind.TEXT: _valid_texts,
    FieldKind.WHOLE: _valid_numbers,
    FieldKind.NUMBER: _valid_numbers,
    FieldKind.YES_NO: lambda field, shape: (True, False),
    FieldKind.ONE: lambda field, shape: (choice.value for choice in field.choices),
    FieldKind.SEVERAL: _valid_lists,
}
_INVALID: Final[Mapping[FieldKind, Callable[[FormField, Mapping[str, Any]], Iterable[Any]]]] = {
    FieldKind.TEXT: _invalid_texts,
    FieldKind.WHOLE: _invalid_numbers,
    FieldKind.NUMBER: _invalid_numbers,
    FieldKind.YES_NO: lambda field, shape: ("not a boolean", ["true"]),
    FieldKind.ONE: lambda field, shape: (_unknown_choice(field), [field.choices[0].value]),
    FieldKind.SEVERAL: _invalid_lists,
}
