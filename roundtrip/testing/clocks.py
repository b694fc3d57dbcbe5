"""The time of day of this process, under a test's control."""

import time
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Clock"]


class Clock:
    """The time of day, standing still until it is moved, while it is set.

    It takes the place of `time.time` for this whole process, servers that exist already included.
    """

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """The time, in seconds since the epoch."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @contextmanager
    def set(self) -> Generator["Clock"]:
        """Have everybody in this process go by it inside a `with` block."""
        before = time.time
        time.time = self
        try:
            yield self
        finally:
            time.time = before
