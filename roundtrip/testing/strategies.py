"""Hypothesis strategies for form answers, valid and invalid, and for form outcomes."""

import datetime
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mcp_types import ElicitResult

from roundtrip.questions.fields import FieldKind
from roundtrip.testing.forms import FieldSamples, clearance, range_of, samples_of

try:
    from hypothesis import strategies as st
except ImportError as missing:
    raise ImportError(
        "roundtrip.testing.strategies needs hypothesis: pip install 'mcp-roundtrip[testing]'", name="hypothesis"
    ) from missing

__all__ = ["answers", "outcomes"]

_MAX_EXTRA_CHARS: Final = 20
"""A text may be at most this many characters longer than its minimum length."""
_MAX_DRAWN_CHARS: Final = 200
"""The maximum length of a text that is drawn letter by letter. Hypothesis limits the size of an example."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_MAX_LOCAL_PART_CHARS: Final = 64
"""Maximum number of characters before the @ in an email address."""
_DOMAIN: Final = "@example.com"
_SITE: Final = "https://example.com/"


def answers(schema: Mapping[str, Any] | None, *, valid: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Draw content that a form accepts. With `valid=False`, draw content that a form rejects because of one mistake.

    Examples shrink to the samples in `roundtrip.testing.forms`, without optional fields.

    Raises:
        ValueError: The schema is not a form, no valid answer is known, or no answer is invalid.

    Example:
        ```python
        @given(content=answers({"type": "object", "properties": {"row": {"type": "string"}}, "required": ["row"]}))
        def test_any_row_has_a_price(content: dict[str, Any]) -> None:
            assert price(content["row"]) > 0
        ```
    """
    fields = samples_of(schema)
    accepted = st.fixed_dictionaries(
        {samples.field.name: _valid(samples) for samples in fields if samples.field.required},
        optional={
            samples.field.name: _valid(samples) for samples in fields if samples.valid and not samples.field.required
        },
    )
    if valid:
        return accepted
    if not fields:
        raise ValueError("valid=False needs a form with fields, because a form without fields rejects no answer")
    missing = [accepted.map(_remove_field(samples.field.name)) for samples in fields if samples.is_needed]
    return st.one_of(
        *missing,
        *(st.tuples(accepted, _invalid(samples)).map(_replace_field(samples.field.name)) for samples in fields),
    )


def outcomes(schema: Mapping[str, Any] | None) -> st.SearchStrategy[ElicitResult]:
    """Draw form outcomes: an accepted form with valid or invalid content, a declined form, or a cancelled form.

    Raises:
        ValueError: The schema is not a form, or no valid answer is known.
    """
    contents = [answers(schema)]
    if samples_of(schema):
        contents.append(answers(schema, valid=False))
    return st.one_of(
        *(st.builds(ElicitResult, action=st.just("accept"), content=content) for content in contents),
        st.just(ElicitResult(action="decline")),
        st.just(ElicitResult(action="cancel")),
    )


def _remove_field(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda content: {key: value for key, value in content.items() if key != name}


def _replace_field(name: str) -> Callable[[tuple[dict[str, Any], Any]], dict[str, Any]]:
    return lambda drawn: {**drawn[0], name: drawn[1]}


def _valid(samples: FieldSamples) -> st.SearchStrategy[Any]:
    # Put the samples first, because hypothesis shrinks to the first alternative.
    more = [values.filter(samples.fits) for values in _valid_strategies(samples)]
    return st.one_of(st.sampled_from(samples.valid), *more)


def _invalid(samples: FieldSamples) -> st.SearchStrategy[Any]:
    more = [values.filter(lambda value: not samples.fits(value)) for values in _invalid_strategies(samples)]
    return st.one_of(st.sampled_from(samples.invalid), *more)


def _valid_strategies(samples: FieldSamples) -> Iterator[st.SearchStrategy[Any]]:
    match samples.field.kind:
        case FieldKind.TEXT:
            yield from _texts(samples)
        case FieldKind.WHOLE | FieldKind.NUMBER if "multipleOf" not in samples.shape:
            yield from _numbers(samples)
        case FieldKind.SEVERAL:
            choices = samples.field.choices
            yield from _choices(samples, *_size(samples, most=len(choices)))
        case _:
            # The samples are enough here: they include every choice, and random numbers would rarely satisfy
            # `multipleOf`.
            return


def _invalid_strategies(samples: FieldSamples) -> Iterator[st.SearchStrategy[Any]]:
    field = samples.field
    match field.kind:
        case FieldKind.TEXT if field.format is None:
            yield from _texts_with_wrong_length(samples)
        case FieldKind.TEXT:
            yield _unacceptable_texts()
        case FieldKind.SEVERAL:
            yield _unacceptable_texts()
            least, most = _size(samples, most=len(field.choices))
            yield from _choices(samples, 0, least - 1)
            yield from _choices(samples, most + 1, len(field.choices))
            yield st.lists(_unacceptable_texts(), min_size=1, max_size=3)
            return
        case _:
            yield _unacceptable_texts()
    if field.kind in (FieldKind.WHOLE, FieldKind.NUMBER):
        low, high = range_of(samples.shape)
        if low is not None:
            yield st.integers(max_value=math.ceil(low - clearance(field, low)))
        if high is not None:
            yield st.integers(min_value=math.floor(high + clearance(field, high)))
    yield st.lists(st.text(max_size=_MAX_EXTRA_CHARS), max_size=3)


def _unacceptable_texts() -> st.SearchStrategy[str]:
    """Draw texts such as `not x`. No number, boolean, choice or format accepts such a text."""
    return st.text(max_size=_MAX_EXTRA_CHARS).map("not {}".format)


def _texts(samples: FieldSamples) -> Iterator[st.SearchStrategy[str]]:
    least, most = _size(samples, most=sys.maxsize)
    if least > min(most, _MAX_DRAWN_CHARS):
        return
    match samples.field.format:
        case "email":
            yield from _padded(
                "", _DOMAIN, max(least, len(_DOMAIN) + 1), min(most, _MAX_LOCAL_PART_CHARS + len(_DOMAIN))
            )
        case "uri":
            yield from _padded(_SITE, "", max(least, len(_SITE)), most)
        case "date":
            yield st.dates().map(datetime.date.isoformat)
        case "date-time":
            yield st.datetimes(timezones=st.just(datetime.UTC)).map(datetime.datetime.isoformat)
        case _ if "pattern" in samples.shape:
            yield st.from_regex(samples.shape["pattern"])
        case _:
            yield st.text(min_size=least, max_size=min(most, least + _MAX_EXTRA_CHARS))


def _padded(head: str, tail: str, least: int, most: int) -> Iterator[st.SearchStrategy[str]]:
    around = len(head) + len(tail)
    if least <= most:
        letters = st.text(_LETTERS, min_size=least - around, max_size=min(most, least + _MAX_EXTRA_CHARS) - around)
        yield letters.map(lambda drawn: head + drawn + tail)


def _texts_with_wrong_length(samples: FieldSamples) -> Iterator[st.SearchStrategy[str]]:
    least, most = _size(samples, most=_MAX_DRAWN_CHARS)
    if 1 <= least <= _MAX_DRAWN_CHARS:
        yield st.text(max_size=least - 1)
    if most < _MAX_DRAWN_CHARS:
        yield st.text(min_size=most + 1, max_size=most + _MAX_EXTRA_CHARS)


def _numbers(samples: FieldSamples) -> Iterator[st.SearchStrategy[float]]:
    low, high = range_of(samples.shape)
    least = math.ceil(low) if low is not None else None
    most = math.floor(high) if high is not None else None
    if least is None or most is None or least <= most:
        yield st.integers(min_value=least, max_value=most)
    # Do not draw floats if a bound is too large for a float.
    if samples.field.kind is FieldKind.NUMBER and all(
        abs(bound) < sys.float_info.max for bound in (low, high) if bound is not None
    ):
        yield st.floats(
            min_value=float(low) if low is not None else None,
            max_value=float(high) if high is not None else None,
            allow_nan=False,
            allow_infinity=False,
        )


def _choices(samples: FieldSamples, least: int, most: int) -> Iterator[st.SearchStrategy[list[str]]]:
    """Draw lists without repeated choices."""
    values = [choice.value for choice in samples.field.choices]
    if 0 <= least <= most <= len(values):
        yield st.lists(st.sampled_from(values), unique=True, min_size=least, max_size=most)


def _size(samples: FieldSamples, *, most: int) -> tuple[int, int]:
    """Return the minimum and maximum size of a text or list. The maximum is never more than `most`."""
    field = samples.field
    return math.ceil(field.least or 0), min(math.floor(field.most), most) if field.most is not None else most
