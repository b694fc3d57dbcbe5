"""Name the cases of a test equally in every process that collects it."""

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def case(value: object) -> str:
    """Return the `repr` of a value without its address in memory."""
    return _ADDRESS.sub("", ascii(value))
