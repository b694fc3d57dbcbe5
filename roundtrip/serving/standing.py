"""How it stands with one process that serves: whether it is ready, and whether it is about to end."""

import anyio

__all__ = ["Standing"]


class Standing:
    """What a process tells of itself. It is changed by signal handlers, and read by requests."""

    def __init__(self) -> None:
        self.started = False
        self.stopping = False
        self.broken_off = False
        """Whether a request was still running when there was no more time for it."""
        self._ended: anyio.Event | None = None

    @property
    def ended(self) -> anyio.Event:
        """Set when those who only listen are to leave."""
        if self._ended is None:
            # Made within the event loop.
            self._ended = anyio.Event()
        return self._ended
