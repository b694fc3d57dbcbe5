"""Registry of this process's recorders with unwritten lines. Readers flush these recorders, and so does the process at
exit.
"""

import atexit
from collections.abc import Callable
from typing import Final

UNWRITTEN: Final[set[Callable[[], None]]] = set()
"""`flush` functions of recorders that wait for the event loop. The loop may end before it runs them."""


@atexit.register
def flush_all() -> None:
    """Make all of this process's recorders write their lines."""
    for flush in list(UNWRITTEN):
        flush()
