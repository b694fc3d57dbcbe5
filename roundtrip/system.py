"""Provide the clocks, randomness, ids and sleep of a process as one value.

Code that needs one of them takes a `System`. A simulation passes its own, so that a fleet of instances runs in one
process and repeats exactly.
"""

import base64
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

_ID_BYTES: Final = 9


async def _sleep(seconds: float, /) -> None:
    import anyio  # not at the top: programs that never sleep do without it

    await anyio.sleep(seconds)


class System(NamedTuple):
    """Clocks, randomness, ids and sleep of a process; by default the real ones."""

    # Functions of their own, and not `time.time` itself: tests patch that.
    time: Callable[[], float] = lambda: time.time()
    """Return the seconds since the epoch."""
    monotonic: Callable[[], float] = lambda: time.monotonic()
    """Return seconds that only grow, for measuring durations."""
    entropy: Callable[[int], bytes] = lambda size: os.urandom(size)
    """Return that many random bytes, fit for keys."""
    sleep: Callable[[float], Awaitable[None]] = _sleep
    """Suspend the asyncio task for that many seconds."""

    def new_id(self, size: int = _ID_BYTES) -> str:
        """Return `size` random bytes as base64url that a command line cannot mistake for an option."""
        while (made := base64.urlsafe_b64encode(self.entropy(size)).rstrip(b"=").decode()).startswith("-"):
            pass
        return made


SYSTEM: Final = System()
"""The real clocks and randomness of this process."""
