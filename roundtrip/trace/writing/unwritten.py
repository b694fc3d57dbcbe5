"""Keep the recorders of this process that have lines to write, so that readers in it, and its end, find all lines."""

import atexit
from collections.abc import Callable
from typing import Final

UNWRITTEN: Final[set[Callable[[], None]]] = set()
"""The functions `flush` of recorders that wait for the event loop, which may end before."""


@atexit.register
def flush_all() -> None:
    """Have all recorders of this process write their lines."""
    for flush in list(UNWRITTEN):
        flush()
