"""Keep the recorders of this process that have lines to write, so that readers in it, and its end, find all lines."""

import atexit
from typing import Final, Protocol

__all__ = ["UNWRITTEN", "Flushed", "flush_all"]


class Flushed(Protocol):
    """Recorder that waits for the event loop, which may end before."""

    def flush(self) -> None:
        """Write all lines now."""
        ...


UNWRITTEN: Final[set[Flushed]] = set()


@atexit.register
def flush_all() -> None:
    """Have all recorders of this process write their lines."""
    for recorder in list(UNWRITTEN):
        recorder.flush()
