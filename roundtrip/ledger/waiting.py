"""Waiting for an entry to be settled, by looking at it again and again."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from roundtrip.ledger.contract import Claim, Standing

__all__ = ["wait_for"]

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2


async def wait_for(look: Callable[[], Awaitable[Claim | None]], *, patience: float) -> Claim | None:
    """What there is to see when nobody is at it any more, or when the patience ends."""
    ends = anyio.current_time() + patience
    pause = _FIRST_PAUSE
    while True:
        seen = await look()
        left = ends - anyio.current_time()
        if seen is None or seen.standing is not Standing.RUNNING or left <= 0:
            return seen
        await anyio.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)
