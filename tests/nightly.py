"""Scale property tests: few examples for every change, and more at night (`pytest --nightly`)."""

import os
from typing import Final

__all__ = ["VARIABLE", "examples"]

VARIABLE: Final = "ROUNDTRIP_TESTS_NIGHTLY"
"""The option sets it before test modules are imported."""

_TIMES: Final = 10


def examples(number: int) -> int:
    """Return the number of examples, multiplied at night."""
    return number * _TIMES if os.environ.get(VARIABLE) else number
