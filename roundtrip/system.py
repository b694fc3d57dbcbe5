"""A process's clocks, randomness, ids and sleep, as one value.

Code that needs one of these takes a `System`. A simulation passes its own `System`, so that a fleet of instances runs
in one process and every run repeats exactly.
"""

import base64
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

_ID_BYTES: Final = 9


async def _sleep(seconds: float, /) -> None:
    import anyio  # lazy: programs that never sleep do not need it

    await anyio.sleep(seconds)


class System(NamedTuple):
    """A process's clocks, randomness, ids and sleep; by default the real ones."""

    # The lambdas are needed because tests patch `time.time`.
    time: Callable[[], float] = lambda: time.time()
    """Return the seconds since the epoch."""
    monotonic: Callable[[], float] = lambda: time.monotonic()
    """Return the time on a clock that never goes backward, for measuring durations."""
    entropy: Callable[[int], bytes] = lambda size: os.urandom(size)
    """Return the given number of random bytes, which are safe to use as keys."""
    sleep: Callable[[float], Awaitable[None]] = _sleep
    """Suspend the asyncio task for the given number of seconds."""

    def new_id(self, size: int = _ID_BYTES) -> str:
        """Return `size` random bytes as base64url that a command line cannot mistake for an option."""
        while (made := base64.urlsafe_b64encode(self.entropy(size)).rstrip(b"=").decode()).startswith("-"):
            pass
        return made


SYSTEM: Final = System()
"""This process's real clocks and randomness."""
