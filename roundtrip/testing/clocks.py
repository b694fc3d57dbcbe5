"""A process clock that a test controls."""

import time
from collections.abc import Generator
from contextlib import contextmanager


class Clock:
    """A clock that stands still until a test moves it.

    Within `set()`, the clock replaces `time.time` for the whole process, including servers that already exist.
    """

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += seconds

    @contextmanager
    def set(self) -> Generator["Clock"]:
        """Replace the process's clock until the `with` block ends."""
        before = time.time
        time.time = self
        try:
            yield self
        finally:
            time.time = before
