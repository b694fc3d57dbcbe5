"""How it stands with one process that serves: whether it is ready, and whether it is about to end."""

import anyio
from starlette.types import Scope

from roundtrip.server.connections import take_no_answers

__all__ = ["ProcessState"]


class ProcessState:
    """What a process tells of itself. It is changed by signal handlers, and read by requests."""

    def __init__(self) -> None:
        self.started = False
        self.stopping = False
        self.broken_off = False
        """Whether a request was still running when there was no more time for it."""
        self.requests: dict[int, Scope] = {}
        """Those that are being served, by the identity of their scopes."""
        self._ended: anyio.Event | None = None

    def end(self) -> None:
        """Have those leave who only listen, or whose answer would be a request that nobody accepts any more."""
        self.ended.set()
        for scope in self.requests.values():
            take_no_answers(scope)

    @property
    def ended(self) -> anyio.Event:
        """Set when those who only listen, or wait for an answer, are to leave."""
        if self._ended is None:
            # Made within the event loop.
            self._ended = anyio.Event()
        return self._ended
