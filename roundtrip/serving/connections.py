"""Choose the connections of a process: how many it can have, and which library reads their requests."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from roundtrip.serving.intake import SURPLUS_CONNECTIONS, Intake
from roundtrip.serving.plain_connection import PlainConnection

__all__ = ["connections_for", "protocol_for"]

_SPARE_FILES: Final = 256
"""Open files requested beyond the connections: for the ledger, tools and transcripts."""
_LEAST_SPARE_FILES: Final = 32
_LEAST_CONNECTIONS: Final = 8


def connections_for(wanted: int) -> int:
    """Raise the limit of open files as far as needed, and return the possible number of connections."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + SURPLUS_CONNECTIONS + _SPARE_FILES
    if allowed < needed:
        allowed = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    spare = min(_SPARE_FILES, max(_LEAST_SPARE_FILES, allowed // 2))
    return min(wanted, max(_LEAST_CONNECTIONS, allowed - SURPLUS_CONNECTIONS - spare))


def protocol_for(intake: Intake) -> Callable[..., asyncio.Protocol]:
    """Return the factory of uvicorn's connections, which read requests with httptools where it is installed."""
    try:
        from roundtrip.serving.fast_connection import FastConnection
    except ImportError:
        return partial(PlainConnection, intake)
    return partial(FastConnection, intake)
