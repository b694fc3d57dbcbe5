"""How long to wait for a server: while a person is thinking, not at all."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["Patience"]


class Patience:
    """A block that is cancelled after so many seconds of waiting for the server."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._scope = anyio.CancelScope()
        self._thinking = 0

    def __enter__(self) -> None:
        self._wait_anew()
        self._scope.__enter__()

    def __exit__(self, *exc_info: object) -> bool:
        return bool(self._scope.__exit__(*exc_info))  # pyright: ignore[reportArgumentType]

    @contextmanager
    def waiting_for_the_person(self) -> Generator[None]:
        """Stop the clock; it starts anew when the last question is answered."""
        self._thinking += 1
        self._scope.deadline = math.inf
        try:
            yield
        finally:
            self._thinking -= 1
            if not self._thinking:
                self._wait_anew()

    def give_up(self) -> None:
        """End the block."""
        self._scope.cancel()

    def _wait_anew(self) -> None:
        self._scope.deadline = anyio.current_time() + self._seconds
