"""Registry of this process's recorders that have unwritten lines. The recorders are flushed before a transcript is
read, and when the process exits.
"""

import atexit
from collections.abc import Callable
from typing import Final

UNWRITTEN: Final[set[Callable[[], None]]] = set()
"""`flush` functions of recorders that are waiting for the event loop. The loop may end before it runs them."""


@atexit.register
def flush_all() -> None:
    """Make all of this process's recorders write their lines."""
    for flush in list(UNWRITTEN):
        flush()
