"""Names for the cases of a test, the same in every process that collects it."""

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def case(value: object) -> str:
    """A value as it shows itself, but for where in memory it is."""
    return _ADDRESS.sub("", ascii(value))
