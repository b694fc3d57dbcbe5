"""How much is tried: a little for every change, and more at night (`pytest --nightly`)."""

import os
from typing import Final

__all__ = ["VARIABLE", "examples"]

VARIABLE: Final = "ROUNDTRIP_TESTS_NIGHTLY"
"""Set by the option, before test modules are imported."""

_TIMES: Final = 10


def examples(number: int) -> int:
    """How many examples a property test tries that tries this many for every change."""
    return number * _TIMES if os.environ.get(VARIABLE) else number
