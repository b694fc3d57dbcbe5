"""Test-case names that are equal in every process that collects the test."""

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def case(value: object) -> str:
    """Return a value's `repr` without its memory address."""
    return _ADDRESS.sub("", ascii(value))
