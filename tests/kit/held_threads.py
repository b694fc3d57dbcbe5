"""Functions that hold their threads until a test releases them."""

import threading

from tests.kit.hosts import WAIT

__all__ = ["Held"]


class Held:
    """Plain function that runs until the test releases it. It counts started and ended runs."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started = 0
        self.ended = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.started += 1
        if not self.release.wait(WAIT):
            raise TimeoutError
        with self._lock:
            self.ended += 1
        return "done"
