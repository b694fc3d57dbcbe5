"""Try few examples and variants for every change, and all of them at night (`pytest --nightly`)."""

import os
from collections.abc import Iterable
from typing import Any, Final, cast

import pytest

__all__ = ["VARIABLE", "at_night", "examples"]

VARIABLE: Final = "ROUNDTRIP_TESTS_NIGHTLY"
"""The option sets it before test modules are imported."""

_TIMES: Final = 10


def examples(number: int) -> int:
    """Return the number of examples, multiplied at night."""
    return number * _TIMES if os.environ.get(VARIABLE) else number


def at_night(*values: Any) -> list[Any]:
    """Return values of a parameter that are tried only at night, because another value shows the same."""
    return [
        pytest.param(*cast("tuple[Any, ...]", value), marks=pytest.mark.nightly)
        if isinstance(value, tuple)
        else pytest.param(value, marks=pytest.mark.nightly)
        for value in values
    ]


def rarely(values: Iterable[Any], *, every: int) -> list[Any]:
    """Return values of a parameter, of which all but some are tried only at night."""
    return [value if place % every == 0 else at_night(value)[0] for place, value in enumerate(values)]
